-- Calls that wait for an operator (EXEC-10).
CREATE TABLE approvals (
    approval_id  BLOB NOT NULL PRIMARY KEY,
    agent_id     TEXT NOT NULL,
    turn_id      BLOB NOT NULL,
    digest       TEXT NOT NULL,
    status       TEXT NOT NULL,
    always       INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    closed_at    INTEGER,
    record       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_order ON approvals (requested_at, approval_id);
CREATE INDEX approvals_status ON approvals (status, requested_at, approval_id);
CREATE INDEX approvals_agent ON approvals (agent_id, requested_at, approval_id);
CREATE INDEX approvals_pending_turn ON approvals (turn_id) WHERE status = 'pending';
CREATE INDEX approvals_always ON approvals (agent_id, digest) WHERE always = 1;
CREATE INDEX approvals_closed ON approvals (closed_at) WHERE status <> 'pending' AND always = 0;
