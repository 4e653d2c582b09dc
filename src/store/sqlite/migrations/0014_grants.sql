-- Write grants (ACL-04). A grant that is revoked or over has no row; its events tell of it.
CREATE TABLE acl_grants (
    grant_id   BLOB NOT NULL PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT;
CREATE INDEX acl_grants_agent ON acl_grants (agent_id, expires_at);
CREATE INDEX acl_grants_expires ON acl_grants (expires_at);

-- The files under output/ (ART-03).
CREATE TABLE artifacts (
    path        TEXT NOT NULL PRIMARY KEY,
    artifact_id BLOB NOT NULL,
    agent_id    TEXT,
    record      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_agent ON artifacts (agent_id, path);

-- What a tool call charged, in millionths of a dollar (TOOL-09).
ALTER TABLE ledger ADD COLUMN cost_micros INTEGER;
