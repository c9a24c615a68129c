//! `throughline keys verify`: opens every sealed row, and reports damage without stopping.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use throughline_conversations::store::{RowId, Rows, SealedRow, SealedRows, SealedTable};
use throughline_conversations::verify::{Damage, Verdict, Verifier};
use throughline_gateway::thinking::store::StoreError;
use throughline_sealing::ChatKey;
use zeroize::Zeroizing;

use super::progress::Progress;
use super::{PresentKeyring, configuration, failed, unreadable};
use crate::cli::keys::Verify;
use crate::commands::{Failure, print};
use crate::keyring;
use crate::stores;

/// How many rows are read together. A row may have megabytes.
const PAGE: usize = 50;

/// A check in progress.
struct Check {
    verifier: Verifier,
    progress: Progress,
    json: bool,
    intact: u64,
    locked: u64,
    damaged: u64,
}

/// Opens every row.
pub(super) async fn run(options: &Verify) -> Result<(), Failure> {
    let config = configuration(options.config.config.as_deref())?;
    let keyring = match &options.keyring {
        Some(path) => {
            let read = keyring::read_file(path).map_err(failed)?;
            read.ok_or_else(|| failed(format!("there is no keyring `{}`", path.display())))?.1
        }
        None => PresentKeyring::expect(&config)?.keyring,
    };
    let chat_keys = options.chat_keys.as_deref().map(read_chat_keys).transpose()?;
    let databases = stores::sealed_rows(&config).await.map_err(|error| unreadable(&error))?;
    let mut total = 0;
    for database in &databases {
        for table in database.tables() {
            total += database.count(*table).await.map_err(|error| unreadable(&error))?;
        }
    }
    let mut check = Check {
        verifier: Verifier::new(Arc::new(keyring), chat_keys.unwrap_or_default()),
        progress: Progress::new(total),
        json: options.config.json,
        intact: 0,
        locked: 0,
        damaged: 0,
    };
    for database in &databases {
        for table in database.tables() {
            check.check_table(&**database, *table).await;
        }
    }
    check.end()
}

/// Reads keys of sealed projects.
fn read_chat_keys(file: &Path) -> Result<Vec<ChatKey>, Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|cause| failed(format!("cannot read `{}`: {cause}", file.display())))?;
    let lines = text.lines().map(str::trim).enumerate();
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys = keys.map(|(at, line)| {
        ChatKey::read(line).map_err(|cause| {
            let position = format!("{}:{}", file.display(), at + 1);
            Failure::Usage(format!("{position}: not a chat key (32 bytes in base64url): {cause}"))
        })
    });
    keys.collect()
}

impl Check {
    async fn check_table(&mut self, database: &dyn SealedRows, table: SealedTable) {
        let mut last = RowId::default();
        loop {
            let rows = match database.read(table, Rows::After { row: &last, limit: PAGE }).await {
                Ok(rows) => rows,
                Err(_) => match self.check_one_by_one(database, table, &last).await {
                    Some(end) => {
                        last = end;
                        continue;
                    }
                    None => return,
                },
            };
            let Some(end) = rows.last() else { return };
            last = end.id.clone();
            for row in rows {
                self.check_row(database, table, row).await;
            }
        }
    }

    /// Checks the rows of a page of which some cannot be read. Returns the last one, or `None` at the
    /// end of the table or if not even its ids can be read.
    async fn check_one_by_one(
        &mut self,
        database: &dyn SealedRows,
        table: SealedTable,
        after: &RowId,
    ) -> Option<RowId> {
        let ids = database.read(table, Rows::IdsAfter { row: after, limit: PAGE }).await;
        let ids = match ids {
            Ok(ids) => ids,
            Err(error) => {
                let reason = format!("no row after this one can be read: {}", error.cause);
                self.report(table, after, &[Damage { field: "id".to_owned(), reason }]);
                return None;
            }
        };
        for row in &ids {
            match database.read(table, Rows::At(&row.id)).await {
                Ok(rows) => {
                    for row in rows {
                        self.check_row(database, table, row).await;
                    }
                }
                Err(error) => {
                    let reason = format!("the database cannot read it: {}", error.cause);
                    self.report(table, &row.id, &[Damage { field: "row".to_owned(), reason }]);
                }
            }
        }
        ids.last().map(|row| row.id.clone())
    }

    async fn check_row(&mut self, database: &dyn SealedRows, table: SealedTable, row: SealedRow) {
        if table == SealedTable::Project {
            self.verifier.learn_project(&row);
        }
        let mut verdict = self.verifier.judge(table, &row);
        if let Verdict::Damaged(_) = verdict {
            // A server that runs may have changed the row, or the key of its project, meanwhile.
            match self.judge_again(database, table, &row).await {
                Ok(Some(again)) => verdict = again,
                Ok(None) => return,
                Err(_) => {}
            }
        }
        match verdict {
            Verdict::Intact => self.intact += 1,
            Verdict::Locked => self.locked += 1,
            Verdict::Damaged(damages) => {
                self.report(table, &row.id, &damages);
                return;
            }
        }
        self.progress.add(1, self.damaged);
    }

    /// Judges a row as it is now. `None` if it is gone.
    async fn judge_again(
        &mut self,
        database: &dyn SealedRows,
        table: SealedTable,
        row: &SealedRow,
    ) -> Result<Option<Verdict>, StoreError> {
        let scope = row.scope.as_deref().unwrap_or_default();
        let project = scope.strip_prefix("project:").unwrap_or(scope);
        if database.tables().contains(&SealedTable::Project) {
            let id = RowId { id: project.to_owned(), number: 0 };
            for project in database.read(SealedTable::Project, Rows::At(&id)).await? {
                self.verifier.learn_project(&project);
            }
        }
        let rows = database.read(table, Rows::At(&row.id)).await?;
        Ok(rows.first().map(|row| self.verifier.judge(table, row)))
    }

    fn report(&mut self, table: SealedTable, id: &RowId, damages: &[Damage]) {
        self.damaged += 1;
        self.progress.clear();
        let (table_name, id) = (table.name(), shown(table, id));
        for Damage { field, reason } in damages {
            print(&match self.json {
                true => json!({"table": table_name, "id": id, "field": field, "reason": reason})
                    .to_string(),
                false => format!("damaged: {table_name} {id} {field}: {reason}"),
            });
        }
        self.progress.add(1, self.damaged);
    }

    fn end(mut self) -> Result<(), Failure> {
        self.progress.clear();
        let Self { intact, locked, damaged, .. } = self;
        let rows = intact + locked + damaged;
        if self.json {
            let result = json!({"rows": rows, "intact": intact, "damaged": damaged,
                "notJudged": locked});
            print(&result.to_string());
        } else {
            print(&format!("{rows} rows: {intact} intact, {damaged} damaged, {locked} not judged"));
            if locked > 0 {
                print("not judged: the chat keys of their projects are not here (see --chat-keys)");
            }
        }
        match damaged {
            0 => Ok(()),
            1 => Err(Failure::Failed("one row is damaged".to_owned())),
            _ => Err(Failure::Failed(format!("{damaged} rows are damaged"))),
        }
    }
}

/// The row as people look for it.
fn shown(table: SealedTable, id: &RowId) -> String {
    match table {
        SealedTable::Log | SealedTable::RoomLog => format!("{}/{}", id.id, id.number),
        SealedTable::VaultRecord => id.number.to_string(),
        _ => id.id.clone(),
    }
}
