"""dashboard passes"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dashboard_passes",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("is_ticket", sa.Boolean(), nullable=False),
        sa.Column("token_digest", sa.String(), nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_dashboard_passes")),
    )


def downgrade() -> None:
    op.drop_table("dashboard_passes")
