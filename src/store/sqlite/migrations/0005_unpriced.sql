-- Whether the price of the model was unknown. For earlier calls this was not recorded; they keep 0.
ALTER TABLE usage ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
