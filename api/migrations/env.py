"""Run by Alembic, always on a connection it is handed (see `api.migrations`)."""

from alembic import context

from api.migrations import options

context.configure(connection=context.config.attributes["connection"], **options())
with context.begin_transaction():
    context.run_migrations()
