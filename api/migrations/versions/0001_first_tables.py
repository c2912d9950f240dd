"""first tables"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target_type", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_target_type_target"), ["target_type", "target"], unique=False)

    op.create_table(
        "cluster_groups",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_cluster_groups_name")),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("resource_package", sa.String(), nullable=True),
        sa.Column("resource_group", sa.String(), nullable=True),
        sa.Column("image", sa.String(), nullable=True),
        sa.Column("head", sa.JSON(), nullable=True),
        sa.Column("worker_groups", sa.JSON(), nullable=False),
        sa.Column("volumes", sa.JSON(), nullable=False),
        sa.Column("advanced_parameters", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("credential", sa.String(), nullable=True),
        sa.Column("autostart", sa.Boolean(), nullable=False),
        sa.Column("idle_stop_s", sa.Integer(), nullable=True),
        sa.Column("max_runs", sa.Integer(), nullable=True),
        sa.Column("on_demand_run", sa.String(), nullable=True),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state_reason", sa.JSON(), nullable=True),
        sa.Column("force_stop", sa.Boolean(), nullable=False),
        sa.Column("nodes_up", sa.Integer(), nullable=False),
        sa.Column("nodes_wanted", sa.Integer(), nullable=False),
        sa.Column("health", sa.JSON(), nullable=True),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("ray_version", sa.String(), nullable=True),
        sa.Column("python_version", sa.String(), nullable=True),
        sa.Column("can_call_back", sa.Boolean(), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
    )
    with op.batch_alter_table("clusters", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_clusters_state"), ["state"], unique=False)
        batch_op.create_index(
            "uq_clusters_live_name",
            ["name"],
            unique=True,
            sqlite_where=sa.text("state != 'DELETED'"),
            postgresql_where=sa.text("state != 'DELETED'"),
        )

    op.create_table(
        "credentials",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credentials")),
        sa.UniqueConstraint("name", name=op.f("uq_credentials_name")),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_target_id_seq"), ["target_id", "seq"], unique=False)

    op.create_table(
        "idempotency_keys",
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("request_digest", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("user", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "jobs",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("run_mode", sa.String(), nullable=False),
        sa.Column("package_id", sa.String(), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_origin_created_at"), ["origin", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_package_id"), ["package_id"], unique=False)
        batch_op.create_index(
            "uq_jobs_live_name",
            ["name"],
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "packages",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("unpacked_bytes", sa.BigInteger(), nullable=False),
        sa.Column("entry_count", sa.Integer(), nullable=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_packages")),
        sa.UniqueConstraint("sha256", name=op.f("uq_packages_sha256")),
    )
    op.create_table(
        "ray_uploads",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", sa.String(), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name=op.f("pk_ray_uploads")),
    )
    with op.batch_alter_table("ray_uploads", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_ray_uploads_last_used_at"), ["last_used_at"], unique=False)

    op.create_table(
        "resource_packages",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("capacity", sa.JSON(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("namespace", sa.String(), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_resource_packages")),
        sa.UniqueConstraint("name", name=op.f("uq_resource_packages_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("resource_packages", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
    )
    op.create_table(
        "job_revisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_revisions_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_revisions")),
        sa.UniqueConstraint("job_id", "revision", name=op.f("uq_job_revisions_job_id_revision")),
    )
    op.create_table(
        "policy_revisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("comment", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["cluster_groups.id"],
            name=op.f("fk_policy_revisions_group_id_cluster_groups"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_revisions")),
        sa.UniqueConstraint("group_id", "revision", name=op.f("uq_policy_revisions_group_id_revision")),
    )
    op.create_table(
        "resource_groups",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("resource_package", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("quota", sa.JSON(), nullable=False),
        sa.Column("queue", sa.JSON(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_package"],
            ["resource_packages.name"],
            name=op.f("fk_resource_groups_resource_package_resource_packages"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_resource_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_resource_groups_name")),
    )
    op.create_table(
        "runs",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("job_revision", sa.Integer(), nullable=False),
        sa.Column("job_name", sa.String(), nullable=False),
        sa.Column("run_mode", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("client_id", sa.String(), nullable=True),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("max_wait_s", sa.Integer(), nullable=True),
        sa.Column("demand", sa.JSON(), nullable=False),
        sa.Column("resource_package", sa.String(), nullable=True),
        sa.Column("resource_group", sa.String(), nullable=True),
        sa.Column("cluster", sa.String(), nullable=True),
        sa.Column("cluster_id", sa.String(), nullable=True),
        sa.Column("cluster_group", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("condition", sa.JSON(), nullable=True),
        sa.Column("end", sa.JSON(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("stop_requested_by", sa.String(), nullable=True),
        sa.Column("stop_code", sa.String(), nullable=True),
        sa.Column("enqueued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("allocated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_runs_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("target", "client_id", name=op.f("uq_runs_target_client_id")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_cluster_group_id"), ["cluster_group", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_cluster_id_state"), ["cluster_id", "state"], unique=False)
        batch_op.create_index("ix_runs_cluster_name_id", ["cluster", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_created_by_id"), ["created_by", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_job_id_id_state"), ["job_id", "id", "state"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_job_name_id"), ["job_name", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_resource_group_id"), ["resource_group", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_state_id"), ["state", "id"], unique=False)
        batch_op.create_index(
            "ix_runs_unsettled",
            ["state"],
            unique=False,
            sqlite_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED', 'QUEUE_TIMEOUT')"),
            postgresql_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED', 'QUEUE_TIMEOUT')"),
        )

    op.create_table(
        "attempts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("demand", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("posted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_timeout_s", sa.Integer(), nullable=False),
        sa.Column("lost_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("driver_address", sa.String(), nullable=True),
        sa.Column("end", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("run_id", "epoch", name=op.f("uq_attempts_run_id_epoch")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(
            "ix_attempts_not_ended",
            ["cluster_id", "state"],
            unique=False,
            sqlite_where=sa.text("state != 'ENDED'"),
            postgresql_where=sa.text("state != 'ENDED'"),
        )

    op.create_table(
        "decisions",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("evaluated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decision", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_decisions_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_decisions")),
    )
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_decisions_run_id_seq"), ["run_id", "seq"], unique=False)

    op.create_table(
        "run_tags",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_tags_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_run_tags")),
    )
    with op.batch_alter_table("run_tags", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_tags_key_value_run_id"), ["key", "value", "run_id"], unique=False)

    op.create_table(
        "logs",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("task_group", sa.String(), nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("source_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("header_done", sa.Boolean(), nullable=False),
        sa.Column("segments", sa.JSON(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_logs_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "task_group", "task", name=op.f("pk_logs")),
    )


def downgrade() -> None:
    op.drop_table("logs")
    with op.batch_alter_table("run_tags", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_tags_key_value_run_id"))

    op.drop_table("run_tags")
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_decisions_run_id_seq"))

    op.drop_table("decisions")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_attempts_not_ended",
            sqlite_where=sa.text("state != 'ENDED'"),
            postgresql_where=sa.text("state != 'ENDED'"),
        )

    op.drop_table("attempts")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_runs_unsettled",
            sqlite_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED', 'QUEUE_TIMEOUT')"),
            postgresql_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED', 'QUEUE_TIMEOUT')"),
        )
        batch_op.drop_index(batch_op.f("ix_runs_state_id"))
        batch_op.drop_index(batch_op.f("ix_runs_resource_group_id"))
        batch_op.drop_index(batch_op.f("ix_runs_job_name_id"))
        batch_op.drop_index(batch_op.f("ix_runs_job_id_id_state"))
        batch_op.drop_index(batch_op.f("ix_runs_created_by_id"))
        batch_op.drop_index("ix_runs_cluster_name_id")
        batch_op.drop_index(batch_op.f("ix_runs_cluster_id_state"))
        batch_op.drop_index(batch_op.f("ix_runs_cluster_group_id"))

    op.drop_table("runs")
    op.drop_table("resource_groups")
    op.drop_table("policy_revisions")
    op.drop_table("job_revisions")
    op.drop_table("tokens")
    op.drop_table("resource_packages")
    with op.batch_alter_table("ray_uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_ray_uploads_last_used_at"))

    op.drop_table("ray_uploads")
    op.drop_table("packages")
    op.drop_table("leases")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_jobs_live_name",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )
        batch_op.drop_index(batch_op.f("ix_jobs_package_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_origin_created_at"))

    op.drop_table("jobs")
    op.drop_table("idempotency_keys")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_target_id_seq"))

    op.drop_table("events")
    op.drop_table("credentials")
    with op.batch_alter_table("clusters", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_clusters_live_name",
            sqlite_where=sa.text("state != 'DELETED'"),
            postgresql_where=sa.text("state != 'DELETED'"),
        )
        batch_op.drop_index(batch_op.f("ix_clusters_state"))

    op.drop_table("clusters")
    op.drop_table("cluster_groups")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_target_type_target"))
        batch_op.drop_index(batch_op.f("ix_audit_at"))

    op.drop_table("audit")
