-- The first schema. Ids are 16-byte blobs, times are milliseconds since 1970, texts are UTF-8. A
-- field has a column of its own only if a query uses it. All other fields are in `record`, as JSON.

CREATE TABLE world_meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The last number of each sequence when its rows were last pruned. It never decreases.
CREATE TABLE counters (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL CHECK (value >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    agent_id   TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL,
    node       TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    deleted_at INTEGER,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX agents_dynamic ON agents (agent_id) WHERE kind = 'dynamic' AND deleted_at IS NULL;

CREATE TABLE agent_skills (
    agent_id TEXT NOT NULL,
    skill    TEXT NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (agent_id, skill)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    job_id     TEXT NOT NULL PRIMARY KEY,
    started_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    seq             INTEGER NOT NULL PRIMARY KEY,
    message_id      BLOB NOT NULL UNIQUE,
    to_agent        TEXT NOT NULL,
    from_party      TEXT NOT NULL,
    kind            TEXT NOT NULL,
    subject         TEXT,
    body            TEXT NOT NULL,
    attachments     TEXT,
    ask_id          BLOB,
    conversation_id TEXT,
    root_id         BLOB NOT NULL,
    hop             INTEGER NOT NULL,
    wake            INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    state           TEXT NOT NULL,
    turn_id         BLOB,
    crashes         INTEGER NOT NULL
) STRICT;
-- Two partial indexes instead of one, so that an inbox is read without skipping finished mail.
CREATE INDEX messages_pending ON messages (to_agent, seq, wake) WHERE state = 'pending';
CREATE INDEX messages_past ON messages (to_agent, seq) WHERE state <> 'pending';
CREATE INDEX messages_turn ON messages (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX messages_ended ON messages (created_at) WHERE state IN ('consumed', 'dead');

CREATE TABLE asks (
    ask_id     BLOB NOT NULL PRIMARY KEY,
    status     TEXT NOT NULL,
    target     TEXT NOT NULL,
    asker_turn BLOB,
    created_at INTEGER NOT NULL,
    closed_at  INTEGER,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX asks_open ON asks (created_at) WHERE status = 'open';
CREATE INDEX asks_open_target ON asks (target) WHERE status = 'open';
CREATE INDEX asks_open_turn ON asks (asker_turn) WHERE status = 'open' AND asker_turn IS NOT NULL;
CREATE INDEX asks_closed ON asks (closed_at) WHERE status <> 'open';

CREATE TABLE turns (
    turn_id    BLOB NOT NULL PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    source     TEXT NOT NULL,
    status     TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_open ON turns (agent_id) WHERE status = 'open';
CREATE INDEX turns_agent ON turns (agent_id, started_at);
CREATE INDEX turns_started ON turns (started_at);
CREATE INDEX turns_ended ON turns (ended_at) WHERE status <> 'open';

CREATE TABLE journal (
    seq           INTEGER NOT NULL PRIMARY KEY,
    turn_id       BLOB NOT NULL,
    at            INTEGER NOT NULL,
    step          TEXT NOT NULL,
    system_hash   TEXT,
    briefing_hash TEXT
) STRICT;
CREATE INDEX journal_turn ON journal (turn_id);
CREATE INDEX journal_system ON journal (system_hash) WHERE system_hash IS NOT NULL;
CREATE INDEX journal_briefing ON journal (briefing_hash) WHERE briefing_hash IS NOT NULL;

CREATE TABLE prompts (
    hash TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;
CREATE INDEX prompts_at ON prompts (at);

CREATE TABLE budgets (
    scope   TEXT NOT NULL PRIMARY KEY,
    limited INTEGER NOT NULL,
    record  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX budgets_limited ON budgets (scope) WHERE limited = 1;

CREATE TABLE reservations (
    reservation_id BLOB NOT NULL PRIMARY KEY,
    turn_id        BLOB NOT NULL,
    status         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    record         TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_turn ON reservations (turn_id);

CREATE TABLE usage (
    seq         INTEGER NOT NULL PRIMARY KEY,
    agent_id    TEXT NOT NULL,
    turn_id     BLOB NOT NULL,
    root_id     BLOB NOT NULL,
    provider    TEXT NOT NULL,
    model       TEXT NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    estimated   INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_at ON usage (at);
CREATE INDEX usage_agent ON usage (agent_id, at);
CREATE INDEX usage_root ON usage (root_id);

CREATE TABLE ledger (
    call_id    BLOB NOT NULL PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    turn_id    BLOB NOT NULL,
    tool       TEXT NOT NULL,
    status     TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    record     TEXT NOT NULL
) STRICT;
CREATE INDEX ledger_started ON ledger (started_at);
CREATE INDEX ledger_agent ON ledger (agent_id, started_at);
CREATE INDEX ledger_turn ON ledger (turn_id);
CREATE INDEX ledger_ended ON ledger (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE requests (
    principal  TEXT NOT NULL,
    request_id TEXT NOT NULL,
    at         INTEGER NOT NULL,
    record     TEXT NOT NULL,
    PRIMARY KEY (principal, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_at ON requests (at);

CREATE TABLE dead_letters (
    dead_letter_id BLOB NOT NULL PRIMARY KEY,
    agent_id       TEXT NOT NULL,
    turn_id        BLOB NOT NULL,
    status         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    resolved_at    INTEGER,
    record         TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letters_created ON dead_letters (created_at);
CREATE INDEX dead_letters_agent ON dead_letters (agent_id, created_at);
CREATE INDEX dead_letters_turn ON dead_letters (turn_id) WHERE status = 'held';

CREATE TABLE dead_letter_mail (
    dead_letter_id BLOB NOT NULL,
    message_id     BLOB NOT NULL,
    PRIMARY KEY (message_id, dead_letter_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letter_mail_of ON dead_letter_mail (dead_letter_id);

CREATE TABLE tasks (
    task_id    BLOB NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    status     TEXT NOT NULL,
    ended      INTEGER NOT NULL,
    parent_id  BLOB,
    priority   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_order ON tasks (priority DESC, created_at, task_id);
CREATE INDEX tasks_owner ON tasks (owner, priority DESC, created_at, task_id);
CREATE INDEX tasks_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_open ON tasks (task_id) WHERE ended = 0;
CREATE INDEX tasks_ended ON tasks (updated_at) WHERE ended = 1;

CREATE TABLE task_deps (
    task_id    BLOB NOT NULL,
    depends_on BLOB NOT NULL,
    PRIMARY KEY (depends_on, task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_deps_of ON task_deps (task_id);

CREATE TABLE task_events (
    seq     INTEGER NOT NULL PRIMARY KEY,
    task_id BLOB NOT NULL,
    record  TEXT NOT NULL
) STRICT;
CREATE INDEX task_events_task ON task_events (task_id);

CREATE TABLE events (
    seq            INTEGER NOT NULL PRIMARY KEY,
    event_id       BLOB NOT NULL,
    ts             INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    agent_id       TEXT,
    channel        TEXT,
    correlation_id TEXT,
    payload        TEXT NOT NULL
) STRICT;
