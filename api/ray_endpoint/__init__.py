"""Ray's own Jobs API in front of Muster's queue: the unchanged `ray job` command and `JobSubmissionClient` work."""
