"""The link to a cluster's dashboard."""

from datetime import datetime

from pydantic import BaseModel


class DashboardTicket(BaseModel):
    path: str
    """Below the server's address; good once."""
    expires_at: datetime
