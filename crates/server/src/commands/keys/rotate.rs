//! `throughline keys rotate`: a new key seals from now on.

use serde_json::json;
use throughline_sealing::Keyring;
use zeroize::Zeroizing;

use super::{PresentKeyring, configuration, failed};
use crate::cli::keys::KeysConfig;
use crate::commands::{Failure, print, print_note};
use crate::keyring;

/// Makes a new key the newest one.
pub(super) fn run(options: &KeysConfig) -> Result<(), Failure> {
    let config = configuration(options.config.as_deref())?;
    let present = PresentKeyring::expect(&config)?;
    let line = keyring::new_line().map_err(failed)?;
    let new = Keyring::read(&line).map_err(failed)?;
    let (new_id, old_id) = (new.newest_id(), present.keyring.newest_id());
    let [new_id, old_id] = [new_id, old_id].map(keyring::write_id);
    let Some(path) = &present.path else {
        print_values(&present.keyring, &new, options.json);
        return Ok(());
    };
    let text = Zeroizing::new(format!("{}{}", *line, *present.text));
    keyring::replace(path, &text).map_err(|cause| {
        let shown = path.display();
        Failure::Failed(format!(
            "cannot write the keyring `{shown}`: {cause}; nothing has changed. If `{shown}.new` \
             exists and no other command runs, remove it and try again"
        ))
    })?;
    match options.json {
        true => print(&json!({"newest": new_id, "previous": old_id}).to_string()),
        false => print(&format!(
            "key {new_id} is now the newest of {}; {old_id} and older keys still open",
            present.location()
        )),
    }
    print_note(
        "Restart the server: it then seals with the new key. Nothing that is stored was changed.\n\
         Backups of the keyring lack the new key: make a new one with \
         `throughline keys recovery create`.",
    );
    Ok(())
}

/// Prints what to set on instances that share a keyring.
fn print_values(present: &Keyring, new: &Keyring, json: bool) {
    let present = present.write();
    let old: Vec<&str> = present.lines().collect();
    let new = new.write();
    let new = new.trim();
    // The first key seals. In the second place the new key opens what others seal with it already.
    let prepared = Zeroizing::new([&[old[0], new][..], &old[1..]].concat().join(","));
    let rotated = Zeroizing::new([&[new][..], &old[..]].concat().join(","));
    match json {
        true => print(&json!({"first": *prepared, "then": *rotated}).to_string()),
        false => {
            print(&format!("first {}={}", keyring::VARIABLE, *prepared));
            print(&format!("then  {}={}", keyring::VARIABLE, *rotated));
        }
    }
    print_note(
        "Set the first value on all instances and restart each of them. After the last one, set the \
         second value and restart them again.",
    );
}
