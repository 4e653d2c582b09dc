-- Droids (DROID-01..17). A record stays after the droid's agent is gone.
CREATE TABLE droids (
    droid_id  TEXT NOT NULL PRIMARY KEY,
    parent_id TEXT NOT NULL,
    ended_at  INTEGER,
    record    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX droids_parent ON droids (parent_id, droid_id);
CREATE INDEX droids_live ON droids (droid_id) WHERE ended_at IS NULL;
CREATE INDEX droids_ended ON droids (ended_at) WHERE ended_at IS NOT NULL;
