//! `throughline migrate`: brings the tables of the configured databases up to date.

use std::path::Path;

use super::{Failure, load, print};
use crate::config::{Overrides, StoreUrl};
use crate::stores::OpenStores;
use crate::wiring;

/// Applies all migrations and prints what was done for each database.
pub async fn run(explicit: Option<&Path>) -> Result<(), Failure> {
    let config = load(explicit, Overrides::default())?;
    // A server that runs with these files must not see its tables change.
    let _lock = match &config.store.url {
        StoreUrl::Sqlite(_) => {
            let lock = wiring::lock_data_dir(&config.data_dir);
            Some(lock.map_err(|error| Failure::Failed(error.to_string()))?)
        }
        StoreUrl::Postgres(_) => None,
    };
    let stores = OpenStores::open(&config).await;
    let stores = stores.map_err(|error| Failure::Failed(format!("{error}: {}", error.cause)))?;
    for (database, applied) in &stores.migrated {
        let done = match applied {
            0 => "nothing to do".to_owned(),
            1 => "1 migration applied".to_owned(),
            count => format!("{count} migrations applied"),
        };
        print(&format!("{database}: {done}"));
    }
    Ok(())
}
