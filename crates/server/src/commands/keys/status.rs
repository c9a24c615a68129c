//! `throughline keys status`: the keys, and what each has sealed.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use throughline_conversations::store::{RowId, Rows, SealedRows, SealedTable};
use throughline_conversations::verify::{SealingKey, Verifier};
use throughline_gateway::thinking::store::StoreError;

use super::{PresentKeyring, configuration, unreadable};
use crate::cli::keys::KeysConfig;
use crate::commands::remote::table;
use crate::commands::{Failure, print};
use crate::keyring;
use crate::stores;

/// How many rows are read together.
const PAGE: usize = 1000;

/// How many rows each key has sealed.
type Counts = HashMap<SealingKey, u64>;

/// Prints the keys.
pub(super) async fn run(options: &KeysConfig) -> Result<(), Failure> {
    let config = configuration(options.config.as_deref())?;
    let Some(present) = PresentKeyring::find(&config)? else {
        match options.json {
            true => print(&json!({"keyring": null, "keys": []}).to_string()),
            false => print("keyring: none yet, the first start creates it"),
        }
        return Ok(());
    };
    let mut verifier = Verifier::new(Arc::new(present.keyring.clone()), Vec::new());
    let mut counts = Counts::new();
    for database in stores::sealed_rows(&config).await.map_err(|error| unreadable(&error))? {
        for table in database.tables() {
            let counted = count(&*database, *table, &mut verifier, &mut counts).await;
            counted.map_err(|error| unreadable(&error))?;
        }
    }
    let rows = |key: &SealingKey| counts.get(key).copied().unwrap_or_default();
    let mut made = keyring::made(&present.text).into_iter();
    let keys: Vec<Value> = present
        .keyring
        .ids()
        .enumerate()
        .map(|(at, id)| {
            let made = made.next().flatten();
            let rows = rows(&SealingKey::OnKeyring(id));
            json!({"id": keyring::write_id(id), "current": at == 0, "made": made, "rows": rows})
        })
        .collect();
    let mode = |mode: &str| verifier.modes().get(mode).copied().unwrap_or_default();
    let status = json!({
        "keyring": present.location(),
        "keys": keys,
        "rowsUnderUnknownKeys": rows(&SealingKey::Unknown),
        "rowsUnderChatKeys": rows(&SealingKey::ChatKey),
        "projects": {"managed": mode("managed"), "sealed": mode("sealed")},
    });
    match options.json {
        true => print(&status.to_string()),
        false => print(&for_people(&status)),
    }
    Ok(())
}

/// Counts the rows of a table by their keys.
async fn count(
    database: &dyn SealedRows,
    table: SealedTable,
    verifier: &mut Verifier,
    counts: &mut Counts,
) -> Result<(), StoreError> {
    let mut last = RowId::default();
    loop {
        let rows = database.read(table, Rows::HeadsAfter { row: &last, limit: PAGE }).await?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = end.id.clone();
        for row in &rows {
            if table == SealedTable::Project {
                verifier.learn_project(row);
            }
            if let Some(key) = verifier.sealing_key(table, row) {
                *counts.entry(key).or_default() += 1;
            }
        }
    }
}

fn for_people(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let rows = status["keys"].as_array().into_iter().flatten().map(|key| {
        let marks = if key["current"] == true { ["*", "seals, and opens"] } else { ["", "opens"] };
        let made = text(&key["made"]);
        vec![marks[0].into(), text(&key["id"]), made, key["rows"].to_string(), marks[1].into()]
    });
    let keys = table(&["", "key", "made", "rows", "use"], rows);
    let projects = &status["projects"];
    let mut lines = vec![
        format!("keyring: {}", text(&status["keyring"])),
        keys,
        format!("projects: {} managed, {} sealed", projects["managed"], projects["sealed"]),
        format!("rows under the keys of sealed projects: {}", status["rowsUnderChatKeys"]),
    ];
    if status["rowsUnderUnknownKeys"] != 0 {
        lines.push(format!(
            "rows under keys that are not on the keyring: {}; `throughline keys verify` names them",
            status["rowsUnderUnknownKeys"]
        ));
    }
    lines.join("\n")
}
