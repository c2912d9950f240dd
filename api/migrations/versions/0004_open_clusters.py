"""open clusters"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("clusters", schema=None) as batch_op:
        batch_op.add_column(sa.Column("allow_open", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("clusters", schema=None) as batch_op:
        batch_op.alter_column("allow_open", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("clusters", schema=None) as batch_op:
        batch_op.drop_column("allow_open")
