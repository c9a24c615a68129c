-- What a block stood under when a provider dropped it.
ALTER TABLE block ADD COLUMN dropped BLOB;
