-- When a turn last took a message (MSG-08).
ALTER TABLE messages ADD COLUMN read_at INTEGER;
