"""gangs, retries and usage"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FILLED = {"attempts": ("placement", "events_bytes"), "runs": ("start_timeout_s", "task_groups", "tries")}
"""What the rows that are there already got a first value for."""


def upgrade() -> None:
    op.create_table(
        "tasks",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("task_group", sa.Integer(), nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("group_name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=True),
        sa.Column("container_ip", sa.String(), nullable=True),
        sa.Column("host_ip", sa.String(), nullable=True),
        sa.Column("agent_address", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_tasks_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "task_group", "task", name=op.f("pk_tasks")),
    )
    op.create_table(
        "usage",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("job_name", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("resource_group", sa.String(), nullable=True),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("amount", sa.JSON(), nullable=False),
        sa.Column("held_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cold_start_s", sa.Double(), nullable=False),
        sa.Column("in_vain", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_usage")),
    )
    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_usage_began_at"), ["began_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_usage_ended_at"), ["ended_at"], unique=False)

    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("placement", sa.JSON(), nullable=False, server_default="{}"))
        batch_op.add_column(sa.Column("placing_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("allocated_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("events_bytes", sa.BigInteger(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("verdict", sa.JSON(), nullable=True))

    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("max_runtime_s", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("start_timeout_s", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("task_groups", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE runs SET waiting_since = enqueued_at")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.alter_column("waiting_since", nullable=False)
    for table, names in _FILLED.items():
        with op.batch_alter_table(table, schema=None) as batch_op:
            for name in names:
                batch_op.alter_column(name, server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_column("waiting_since")
        batch_op.drop_column("not_before")
        batch_op.drop_column("tries")
        batch_op.drop_column("task_groups")
        batch_op.drop_column("start_timeout_s")
        batch_op.drop_column("max_runtime_s")

    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_column("verdict")
        batch_op.drop_column("events_bytes")
        batch_op.drop_column("allocated_at")
        batch_op.drop_column("placing_at")
        batch_op.drop_column("placement")

    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_usage_ended_at"))
        batch_op.drop_index(batch_op.f("ix_usage_began_at"))

    op.drop_table("usage")
    op.drop_table("tasks")
