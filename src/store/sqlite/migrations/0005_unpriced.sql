-- Whether nobody has said what the model costs. Of earlier calls it is not known any more: they stay at nothing.
ALTER TABLE usage ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
