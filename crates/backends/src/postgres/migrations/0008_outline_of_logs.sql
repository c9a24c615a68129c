-- Pieces that only continue texts. Who resumes after them does not need them.
ALTER TABLE log ADD COLUMN continues BIGINT NOT NULL DEFAULT 0;

CREATE INDEX log_outline ON log (run, first) WHERE continues = 0;
