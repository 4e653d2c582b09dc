-- The schema of SQLite's migrations 1 to 18, for PostgreSQL 15. Ids are 16 bytes, times are milliseconds since 1970, truth is 0 or 1.
-- Texts are compared by their bytes, as in SQLite.

CREATE TABLE acl_grants (
    grant_id   BYTEA NOT NULL,
    agent_id   TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (grant_id)
);
CREATE INDEX acl_grants_agent ON acl_grants (agent_id, expires_at);
CREATE INDEX acl_grants_expires ON acl_grants (expires_at);

CREATE TABLE agent_skills (
    agent_id TEXT COLLATE "C" NOT NULL,
    skill    TEXT COLLATE "C" NOT NULL,
    record   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (agent_id, skill)
);

CREATE TABLE agents (
    agent_id   TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    node       TEXT COLLATE "C" NOT NULL,
    epoch      BIGINT NOT NULL,
    deleted_at BIGINT,
    record     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C",
    archetype  TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id)
);
CREATE INDEX agents_dynamic ON agents (agent_id) WHERE kind = 'dynamic' AND deleted_at IS NULL;
CREATE INDEX agents_gone ON agents (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX agents_living ON agents (agent_id) WHERE deleted_at IS NULL;

CREATE TABLE approvals (
    approval_id  BYTEA NOT NULL,
    agent_id     TEXT COLLATE "C" NOT NULL,
    turn_id      BYTEA NOT NULL,
    digest       TEXT COLLATE "C" NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    always       BIGINT NOT NULL,
    requested_at BIGINT NOT NULL,
    closed_at    BIGINT,
    record       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (approval_id)
);
CREATE INDEX approvals_agent ON approvals (agent_id, requested_at, approval_id);
CREATE INDEX approvals_always ON approvals (agent_id, digest) WHERE always = 1;
CREATE INDEX approvals_closed ON approvals (closed_at) WHERE status <> 'pending' AND always = 0;
CREATE INDEX approvals_order ON approvals (requested_at, approval_id);
CREATE INDEX approvals_pending_turn ON approvals (turn_id) WHERE status = 'pending';
CREATE INDEX approvals_status ON approvals (status, requested_at, approval_id);

CREATE TABLE artifacts (
    path        TEXT COLLATE "C" NOT NULL,
    artifact_id BYTEA NOT NULL,
    agent_id    TEXT COLLATE "C",
    record      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (path)
);
CREATE INDEX artifacts_agent ON artifacts (agent_id, path);

CREATE TABLE asks (
    ask_id     BYTEA NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    target     TEXT COLLATE "C" NOT NULL,
    asker_turn BYTEA,
    created_at BIGINT NOT NULL,
    closed_at  BIGINT,
    record     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (ask_id)
);
CREATE INDEX asks_closed ON asks (closed_at) WHERE status <> 'open';
CREATE INDEX asks_open ON asks (created_at) WHERE status = 'open';
CREATE INDEX asks_open_target ON asks (target) WHERE status = 'open';
CREATE INDEX asks_open_turn ON asks (asker_turn) WHERE status = 'open' AND asker_turn IS NOT NULL;

CREATE TABLE budgets (
    scope      TEXT COLLATE "C" NOT NULL,
    limited    BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    root_id    BYTEA,
    reserved   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (scope)
);
CREATE INDEX budgets_limited ON budgets (scope) WHERE limited = 1;
CREATE INDEX budgets_roots ON budgets (updated_at) WHERE root_id IS NOT NULL;

CREATE TABLE chat_channels (
    channel  TEXT COLLATE "C" NOT NULL,
    gated    BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    record   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (channel)
);

CREATE TABLE chat_members (
    channel   TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    read_seq  BIGINT NOT NULL,
    wake_id   BYTEA,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (channel, agent_id)
);
CREATE INDEX chat_members_agent ON chat_members (agent_id, channel);

CREATE TABLE chat_posts (
    channel    TEXT COLLATE "C" NOT NULL,
    seq        BIGINT NOT NULL,
    message_id BYTEA NOT NULL,
    from_party TEXT COLLATE "C" NOT NULL,
    content    TEXT COLLATE "C" NOT NULL,
    mentions   TEXT COLLATE "C",
    reply_to   BIGINT,
    root_id    BYTEA NOT NULL,
    hop        BIGINT NOT NULL,
    ts         BIGINT NOT NULL,
    PRIMARY KEY (channel, seq)
);
CREATE INDEX chat_posts_ts ON chat_posts (ts);

CREATE TABLE conversation_entries (
    conversation_id BYTEA NOT NULL,
    seq             BIGINT NOT NULL,
    turn_id         BYTEA,
    delivery        TEXT COLLATE "C" NOT NULL,
    next_at         BIGINT,
    at              BIGINT NOT NULL,
    record          TEXT COLLATE "C" NOT NULL,
    message_id      BYTEA NOT NULL,
    PRIMARY KEY (conversation_id, seq)
);
CREATE INDEX conversation_entries_at ON conversation_entries (at);
CREATE INDEX conversation_entries_due ON conversation_entries (next_at) WHERE delivery = 'pending';
CREATE INDEX conversation_entries_turn ON conversation_entries (turn_id) WHERE turn_id IS NOT NULL;

CREATE TABLE conversations (
    conversation_id BYTEA NOT NULL,
    adapter         TEXT COLLATE "C" NOT NULL,
    thread          TEXT COLLATE "C" NOT NULL,
    owner           TEXT COLLATE "C" NOT NULL,
    updated_at      BIGINT NOT NULL,
    record          TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (conversation_id),
    UNIQUE (adapter, thread)
);
CREATE INDEX conversations_owner ON conversations (owner, updated_at);
CREATE INDEX conversations_updated ON conversations (updated_at);

CREATE TABLE counters (
    name  TEXT COLLATE "C" NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE dead_letter_mail (
    dead_letter_id BYTEA NOT NULL,
    message_id     BYTEA NOT NULL,
    PRIMARY KEY (message_id, dead_letter_id)
);
CREATE INDEX dead_letter_mail_of ON dead_letter_mail (dead_letter_id);

CREATE TABLE dead_letters (
    dead_letter_id BYTEA NOT NULL,
    agent_id       TEXT COLLATE "C" NOT NULL,
    turn_id        BYTEA NOT NULL,
    status         TEXT COLLATE "C" NOT NULL,
    created_at     BIGINT NOT NULL,
    resolved_at    BIGINT,
    record         TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (dead_letter_id)
);
CREATE INDEX dead_letters_agent ON dead_letters (agent_id, created_at);
CREATE INDEX dead_letters_agent_status ON dead_letters (agent_id, status, created_at);
CREATE INDEX dead_letters_created ON dead_letters (created_at);
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE status <> 'held';
CREATE INDEX dead_letters_status ON dead_letters (status, created_at);
CREATE INDEX dead_letters_turn ON dead_letters (turn_id) WHERE status = 'held';

CREATE TABLE droids (
    droid_id  TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL,
    ended_at  BIGINT,
    record    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (droid_id)
);
CREATE INDEX droids_ended ON droids (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX droids_live ON droids (droid_id) WHERE ended_at IS NULL;
CREATE INDEX droids_parent ON droids (parent_id, droid_id);

CREATE TABLE events (
    seq            BIGINT NOT NULL,
    event_id       BYTEA NOT NULL,
    ts             BIGINT NOT NULL,
    kind           TEXT COLLATE "C" NOT NULL,
    agent_id       TEXT COLLATE "C",
    channel        TEXT COLLATE "C",
    correlation_id TEXT COLLATE "C",
    payload        TEXT COLLATE "C" NOT NULL,
    correlation    BYTEA,
    PRIMARY KEY (seq)
);

CREATE TABLE inboxes (
    agent_id TEXT COLLATE "C" NOT NULL,
    pending  BIGINT NOT NULL,
    PRIMARY KEY (agent_id)
);

CREATE TABLE jobs (
    job_id      TEXT COLLATE "C" NOT NULL,
    started_at  BIGINT NOT NULL,
    record      TEXT COLLATE "C" NOT NULL,
    task_id     BYTEA,
    root_id     BYTEA NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (job_id)
);
CREATE INDEX jobs_started ON jobs (started_at);
CREATE INDEX jobs_task ON jobs (task_id);

CREATE TABLE journal (
    seq           BIGINT NOT NULL,
    turn_id       BYTEA NOT NULL,
    at            BIGINT NOT NULL,
    step          TEXT COLLATE "C" NOT NULL,
    system_hash   TEXT COLLATE "C",
    briefing_hash TEXT COLLATE "C",
    PRIMARY KEY (seq)
);
CREATE INDEX journal_briefed ON journal (seq) WHERE system_hash IS NOT NULL;
CREATE INDEX journal_turn ON journal (turn_id);

CREATE TABLE knowledge (
    entry_id   TEXT COLLATE "C" NOT NULL,
    deleted    BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    creator    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (entry_id)
);
CREATE INDEX knowledge_gone ON knowledge (updated_at) WHERE deleted = 1;
CREATE INDEX knowledge_kept ON knowledge (entry_id) WHERE deleted = 0;

CREATE TABLE knowledge_versions (
    entry_id TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    record   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (entry_id, version)
);

CREATE TABLE ledger (
    call_id     BYTEA NOT NULL,
    agent_id    TEXT COLLATE "C" NOT NULL,
    turn_id     BYTEA NOT NULL,
    tool        TEXT COLLATE "C" NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    started_at  BIGINT NOT NULL,
    ended_at    BIGINT,
    record      TEXT COLLATE "C" NOT NULL,
    cost_micros BIGINT,
    duration_ms BIGINT,
    bytes_in    BIGINT,
    bytes_out   BIGINT,
    tokens      BIGINT,
    PRIMARY KEY (call_id)
);
CREATE INDEX ledger_agent ON ledger (agent_id, started_at);
CREATE INDEX ledger_agent_status ON ledger (agent_id, status, started_at) WHERE status <> 'ok';
CREATE INDEX ledger_agent_tool ON ledger (agent_id, tool, started_at);
CREATE INDEX ledger_ended ON ledger (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ledger_started ON ledger (started_at);
CREATE INDEX ledger_status ON ledger (status, started_at) WHERE status <> 'ok';
CREATE INDEX ledger_tool ON ledger (tool, started_at);
CREATE INDEX ledger_turn ON ledger (turn_id);

CREATE TABLE messages (
    seq             BIGINT NOT NULL,
    message_id      BYTEA NOT NULL,
    to_agent        TEXT COLLATE "C" NOT NULL,
    from_party      TEXT COLLATE "C" NOT NULL,
    kind            TEXT COLLATE "C" NOT NULL,
    subject         TEXT COLLATE "C",
    body            TEXT COLLATE "C" NOT NULL,
    attachments     TEXT COLLATE "C",
    ask_id          BYTEA,
    conversation_id TEXT COLLATE "C",
    root_id         BYTEA NOT NULL,
    hop             BIGINT NOT NULL,
    wake            BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    state           TEXT COLLATE "C" NOT NULL,
    turn_id         BYTEA,
    crashes         BIGINT NOT NULL,
    read_at         BIGINT,
    PRIMARY KEY (seq),
    UNIQUE (message_id)
);
CREATE INDEX messages_ended ON messages (created_at) WHERE state IN ('consumed', 'dead');
CREATE INDEX messages_past ON messages (to_agent, seq) WHERE state <> 'pending';
CREATE INDEX messages_pending ON messages (to_agent, seq, wake) WHERE state = 'pending';
CREATE INDEX messages_turn ON messages (turn_id) WHERE turn_id IS NOT NULL;

CREATE TABLE prompts (
    hash TEXT COLLATE "C" NOT NULL,
    text TEXT COLLATE "C" NOT NULL,
    at   BIGINT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE INDEX prompts_at ON prompts (at);

CREATE TABLE requests (
    principal  TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    at         BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (principal, request_id)
);
CREATE INDEX requests_at ON requests (at);

CREATE TABLE roots (
    root_id    BYTEA NOT NULL,
    messages   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (root_id)
);
CREATE INDEX roots_messages ON roots (messages);
CREATE INDEX roots_updated ON roots (updated_at);

CREATE TABLE schedule_runs (
    schedule_id BYTEA NOT NULL,
    run         BIGINT NOT NULL,
    message_id  BYTEA,
    fired_at    BIGINT NOT NULL,
    record      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (schedule_id, run)
);
CREATE INDEX schedule_runs_fired ON schedule_runs (fired_at);
CREATE INDEX schedule_runs_message ON schedule_runs (message_id) WHERE message_id IS NOT NULL;

CREATE TABLE schedules (
    schedule_id BYTEA NOT NULL,
    agent_id    TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    next_at     BIGINT,
    record      TEXT COLLATE "C" NOT NULL,
    root_id     BYTEA NOT NULL,
    PRIMARY KEY (schedule_id),
    UNIQUE (agent_id, kind, name)
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE sessions (
    agent_id        TEXT COLLATE "C" NOT NULL,
    conversation_id TEXT COLLATE "C" NOT NULL,
    ended_at        BIGINT NOT NULL,
    record          TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (agent_id, conversation_id)
);
CREATE INDEX sessions_ended ON sessions (ended_at);

CREATE TABLE shared_state (
    key    TEXT COLLATE "C" NOT NULL,
    record TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (key)
);

CREATE TABLE task_deps (
    task_id    BYTEA NOT NULL,
    depends_on BYTEA NOT NULL,
    PRIMARY KEY (depends_on, task_id)
);
CREATE INDEX task_deps_of ON task_deps (task_id);

CREATE TABLE task_events (
    seq     BIGINT NOT NULL,
    task_id BYTEA NOT NULL,
    record  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (seq)
);
CREATE INDEX task_events_task ON task_events (task_id);

CREATE TABLE tasks (
    task_id    BYTEA NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    ended      BIGINT NOT NULL,
    parent_id  BYTEA,
    priority   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    record     TEXT COLLATE "C" NOT NULL,
    root_id    BYTEA NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX tasks_ended ON tasks (updated_at) WHERE ended = 1;
CREATE INDEX tasks_open ON tasks (task_id) WHERE ended = 0;
CREATE INDEX tasks_order ON tasks (priority DESC, created_at, task_id);
CREATE INDEX tasks_owner ON tasks (owner, priority DESC, created_at, task_id);
CREATE INDEX tasks_owner_status ON tasks (owner, status, priority DESC, created_at, task_id);
CREATE INDEX tasks_parent ON tasks (parent_id, priority DESC, created_at, task_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_root ON tasks (root_id);
CREATE INDEX tasks_status ON tasks (status, priority DESC, created_at, task_id);

CREATE TABLE turn_roots (
    root_id BYTEA NOT NULL,
    turn_id BYTEA NOT NULL,
    PRIMARY KEY (root_id, turn_id)
);

CREATE TABLE turns (
    turn_id         BYTEA NOT NULL,
    agent_id        TEXT COLLATE "C" NOT NULL,
    source          TEXT COLLATE "C" NOT NULL,
    status          TEXT COLLATE "C" NOT NULL,
    started_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    record          TEXT COLLATE "C" NOT NULL,
    root_id         BYTEA NOT NULL,
    other_roots     BYTEA NOT NULL,
    standing        TEXT COLLATE "C",
    log_from        BIGINT,
    conversation_id BYTEA NOT NULL,
    in_log          BIGINT NOT NULL,
    PRIMARY KEY (turn_id)
);
CREATE INDEX turns_agent ON turns (agent_id, started_at);
CREATE INDEX turns_cron_ended ON turns (ended_at) WHERE source = 'cron' AND status <> 'open';
CREATE INDEX turns_ended ON turns (ended_at) WHERE status <> 'open';
CREATE INDEX turns_open ON turns (agent_id) WHERE status = 'open';
CREATE INDEX turns_session ON turns (agent_id, source, conversation_id, ended_at) WHERE in_log = 1;
CREATE INDEX turns_started ON turns (started_at);
CREATE INDEX turns_status ON turns (status, started_at) WHERE status <> 'open';
CREATE INDEX turns_unfinished ON turns (agent_id, status, started_at) WHERE status <> 'open' AND status <> 'finished';

CREATE TABLE usage (
    seq         BIGINT NOT NULL,
    agent_id    TEXT COLLATE "C" NOT NULL,
    turn_id     BYTEA NOT NULL,
    root_id     BYTEA NOT NULL,
    provider    TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    input       BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    cache_read  BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cost        BIGINT NOT NULL,
    estimated   BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    unpriced    BIGINT NOT NULL,
    free        BIGINT NOT NULL,
    PRIMARY KEY (seq)
);
CREATE INDEX usage_at ON usage (at);

CREATE TABLE usage_days (
    day            BIGINT NOT NULL,
    agent_id       TEXT COLLATE "C" NOT NULL,
    provider       TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    calls          BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cache_read     BIGINT NOT NULL,
    cache_write    BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    estimated      BIGINT NOT NULL,
    estimated_cost BIGINT NOT NULL,
    unpriced       BIGINT NOT NULL,
    free           BIGINT NOT NULL,
    PRIMARY KEY (day, agent_id, provider, model)
);

CREATE TABLE usage_roots (
    root_id        BYTEA NOT NULL,
    day            BIGINT NOT NULL,
    agent_id       TEXT COLLATE "C" NOT NULL,
    provider       TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    calls          BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cache_read     BIGINT NOT NULL,
    cache_write    BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    estimated      BIGINT NOT NULL,
    estimated_cost BIGINT NOT NULL,
    unpriced       BIGINT NOT NULL,
    free           BIGINT NOT NULL,
    PRIMARY KEY (root_id, day, agent_id, provider, model)
);

CREATE TABLE usage_totals (
    agent_id       TEXT COLLATE "C" NOT NULL,
    provider       TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    calls          BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cache_read     BIGINT NOT NULL,
    cache_write    BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    estimated      BIGINT NOT NULL,
    estimated_cost BIGINT NOT NULL,
    unpriced       BIGINT NOT NULL,
    free           BIGINT NOT NULL,
    PRIMARY KEY (agent_id, provider, model)
);

CREATE TABLE watch_snapshots (
    schedule_id BYTEA NOT NULL,
    record      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (schedule_id)
);

CREATE TABLE world_meta (
    key   TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (key)
);
