//! Reads all sealed values of a database, row by row.

use throughline_conversations::store::{RowId, Rows, SealedRow, SealedRows, SealedTable};
use throughline_gateway::thinking::store::StoreFuture;

use super::{Database, Row, Value, error, values};

/// How many of the first bytes of a value name its key, after the names of fields before it.
const HEAD: usize = 64;

/// The sealed values of a database.
#[derive(Clone, Debug)]
pub(crate) struct SqlSealedRows<D> {
    pub(crate) database: D,
    pub(crate) tables: &'static [SealedTable],
}

/// The columns that identify a row, what it belongs to, its facts, and the tables to read.
fn parts(table: SealedTable) -> [&'static str; 5] {
    match table {
        SealedTable::Project => ["id", "0", "id", "facts", "project"],
        SealedTable::Node => ["id", "0", "project", "NULL", "node"],
        SealedTable::RawResponse => [
            "raw_response.node",
            "0",
            "node.project",
            "NULL",
            "raw_response LEFT JOIN node ON node.id = raw_response.node",
        ],
        SealedTable::Reference => ["id", "0", "project", "NULL", "reference"],
        SealedTable::Run => ["id", "0", "scope", "NULL", "run"],
        SealedTable::Log => {
            ["log.run", "log.first", "run.scope", "NULL", "log LEFT JOIN run ON run.id = log.run"]
        }
        SealedTable::Channel => ["owner || '/' || id", "0", "NULL", "NULL", "channel"],
        SealedTable::Room => ["id", "0", "project", "NULL", "room"],
        SealedTable::RoomLog => [
            "room_log.room",
            "room_log.number",
            "room.project",
            "NULL",
            "room_log LEFT JOIN room ON room.id = room_log.room",
        ],
        SealedTable::Delivery => [
            "delivery.id",
            "0",
            "room.project",
            "NULL",
            "delivery LEFT JOIN room ON room.id = delivery.room",
        ],
        SealedTable::VaultRecord => ["''", "id", "NULL", "NULL", "vault_record"],
    }
}

/// The statement for some rows of a table, and its parameters.
fn statement(table: SealedTable, rows: Rows<'_>) -> (String, Vec<Value>) {
    let [id, number, scope, facts, from] = parts(table);
    let column = |column: &&str| {
        let whole = format!("{}.{column}", table.name());
        match rows {
            Rows::IdsAfter { .. } => "NULL".to_owned(),
            Rows::HeadsAfter { .. } => format!("substr({whole}, 1, {HEAD})"),
            Rows::After { .. } | Rows::At(_) => whole,
        }
    };
    let columns: Vec<String> = table.columns().iter().map(column).collect();
    let (row, sign, limit) = match rows {
        Rows::After { row, limit }
        | Rows::HeadsAfter { row, limit }
        | Rows::IdsAfter { row, limit } => (row, ">", limit),
        Rows::At(row) => (row, "=", 1),
    };
    // Each form can use the primary key of its table.
    let (chosen, order) = match table {
        SealedTable::Log | SealedTable::RoomLog => {
            (format!("({id}, {number}) {sign} ($1, $2)"), format!("{id}, {number}"))
        }
        SealedTable::VaultRecord => (format!("{number} {sign} $2 AND $1 = ''"), number.to_owned()),
        _ => (format!("{id} {sign} $1 AND $2 = $2"), id.to_owned()),
    };
    let statement = format!(
        "SELECT {id}, {number}, {scope}, {facts}, {} FROM {from} WHERE {chosen}
         ORDER BY {order} LIMIT $3",
        columns.join(", ")
    );
    (statement, values![&*row.id, row.number, limit])
}

fn read_row(table: SealedTable, mut row: Row) -> Result<SealedRow, sqlx::Error> {
    Ok(SealedRow {
        id: RowId { id: row.text()?, number: row.number()? },
        scope: row.optional_text()?,
        facts: row.optional_text()?,
        values: table.columns().iter().map(|_| row.stored_bytes()).collect::<Result<_, _>>()?,
    })
}

impl<D: Database> SealedRows for SqlSealedRows<D> {
    fn tables(&self) -> &'static [SealedTable] {
        self.tables
    }

    fn count(&self, table: SealedTable) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let statement = format!("SELECT count(*) FROM {}", table.name());
            let failed =
                |cause| error(format!("cannot count the rows of `{}`", table.name()), cause);
            let found = self.database.read(&statement, Vec::new()).await.map_err(failed)?;
            let count = found.into_iter().next().map(|mut row| row.number());
            Ok(count.transpose().map_err(failed)?.unwrap_or_default())
        })
    }

    fn read(&self, table: SealedTable, rows: Rows<'_>) -> StoreFuture<'_, Vec<SealedRow>> {
        let (statement, values) = statement(table, rows);
        Box::pin(async move {
            let failed = |cause| error(format!("cannot read rows of `{}`", table.name()), cause);
            let found = self.database.read(&statement, values).await.map_err(failed)?;
            let rows = found.into_iter().map(|row| read_row(table, row));
            rows.collect::<Result<_, _>>().map_err(failed)
        })
    }
}
