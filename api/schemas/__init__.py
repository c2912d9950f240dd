"""What travels over HTTP: pydantic models only, one module a noun."""
