-- What the answers of runs have cost. A run is forgotten after a while, its cost is not.
CREATE TABLE run_cost (
    run TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    room TEXT,
    channel TEXT,
    -- Null if no token counts were reported.
    picodollars INTEGER,
    unpriced_tokens INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX run_cost_project ON run_cost (project, room);
