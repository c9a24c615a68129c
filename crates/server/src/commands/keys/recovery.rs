//! `throughline keys recovery`: backups of the keyring under a recovery code.

use std::io::IsTerminal;
use std::path::Path;

use throughline_gateway::thinking::random;
use throughline_sealing::{
    KeyId, Keyring, OpenError, RecoveryCode, open_keyring, seal_keyring, text,
};
use zeroize::Zeroizing;

use super::{PresentKeyring, configuration, failed};
use crate::cli::keys::{Backup, Recovery};
use crate::commands::{Failure, print, print_note};
use crate::config::Config;
use crate::keyring;
use crate::stores;

/// The variable with a recovery code.
const CODE_VARIABLE: &str = "THROUGHLINE_RECOVERY_CODE";

/// The first line of a backup.
const COMMENT: &str =
    "# A keyring of throughline. `throughline keys recovery restore` opens it with its code.";

/// Runs one of the commands.
pub(super) async fn run(command: &Recovery) -> Result<(), Failure> {
    match command {
        Recovery::Create { out, config } => create(out, config.as_deref()),
        Recovery::Check(backup) => check(backup),
        Recovery::Restore(backup) => restore(backup).await,
    }
}

fn create(out: &Path, config: Option<&Path>) -> Result<(), Failure> {
    let present = PresentKeyring::expect(&configuration(config)?)?;
    let code = RecoveryCode::new(random::secret().map_err(failed)?);
    let sealed = seal_keyring(&present.text, &code, &random::envelope_nonce());
    let written = keyring::write_new(out, &format!("{COMMENT}\n{}\n", text::write(&sealed)));
    written.map_err(|cause| {
        Failure::Failed(format!("cannot write the backup `{}`: {cause}", out.display()))
    })?;
    print(&code.write());
    print_note(&format!(
        "This recovery code opens `{}` and is shown only now: write it down, and keep it apart from \
         the file.",
        out.display()
    ));
    Ok(())
}

/// Opens a backup. Returns its text and its keys.
fn open(file: &Path) -> Result<(Zeroizing<String>, Keyring), Failure> {
    let shown = file.display();
    let read = std::fs::read_to_string(file);
    let read =
        read.map_err(|cause| failed(format!("cannot read the backup `{shown}`: {cause}")))?;
    let sealed = read.lines().find(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    let sealed = sealed.and_then(text::read);
    let sealed = sealed.ok_or_else(|| failed(format!("`{shown}` is not a backup of a keyring")))?;
    let code = RecoveryCode::read(&read_code()?)
        .map_err(|cause| failed(format!("this is not a recovery code: {cause}")))?;
    let opened = open_keyring(&sealed, &code).map_err(|cause| match cause {
        OpenError::WrongKey(_) => failed(format!("`{shown}` was made with another recovery code")),
        cause => failed(format!("the backup `{shown}` is damaged: {cause}")),
    })?;
    let keyring = Keyring::read(&opened)
        .map_err(|cause| failed(format!("the backup `{shown}` is damaged: {cause}")))?;
    Ok((opened, keyring))
}

/// The code, from the environment or from stdin.
fn read_code() -> Result<Zeroizing<String>, Failure> {
    if let Ok(code) = std::env::var(CODE_VARIABLE) {
        return Ok(Zeroizing::new(code));
    }
    if std::io::stdin().is_terminal() {
        print_note("The recovery code:");
    }
    let mut line = Zeroizing::new(String::new());
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|cause| failed(format!("cannot read the recovery code: {cause}")))?;
    Ok(line)
}

fn shown(ids: &[KeyId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| keyring::write_id(*id)).collect();
    ids.join(", ")
}

fn check(backup: &Backup) -> Result<(), Failure> {
    let config = configuration(backup.config.as_deref())?;
    let (_, keys) = open(&backup.file)?;
    let ids: Vec<KeyId> = keys.ids().collect();
    print(&format!("keys in the backup: {}", shown(&ids)));
    let Some(present) = PresentKeyring::find(&config)? else {
        print_note("There is no keyring to compare it with.");
        return Ok(());
    };
    let missing: Vec<KeyId> = present.keyring.ids().filter(|id| !keys.contains(*id)).collect();
    if missing.is_empty() {
        print(&format!("the backup has all keys of {}", present.location()));
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "the backup lacks keys of {}: {}; make a new one with `throughline keys recovery create`",
        present.location(),
        shown(&missing)
    )))
}

async fn restore(backup: &Backup) -> Result<(), Failure> {
    let config = configuration(backup.config.as_deref())?;
    let (text, keys) = open(&backup.file)?;
    let present = PresentKeyring::find(&config)?;
    let missing: Vec<&str> = match &present {
        Some(present) => missing_lines(&text, &present.keyring),
        None => text.lines().collect(),
    };
    let present_text = present.as_ref().map_or("", |present| present.text.trim_end());
    // Keys that are there stay in front: the first one seals.
    let all = Zeroizing::new(format!("{present_text}\n{}\n", missing.join("\n")));
    let all = Zeroizing::new(all.trim_start().to_owned());
    let keyring = Keyring::read(&all).map_err(failed)?;
    let path = config.data_dir.join(keyring::FILE);
    match &present {
        Some(present) if present.path.is_none() => {
            let value = Zeroizing::new(keyring.write().trim().replace('\n', ","));
            print(&format!("{}={}", keyring::VARIABLE, *value));
        }
        Some(_) if missing.is_empty() => print("the keyring has all keys of the backup"),
        Some(_) => {
            keyring::replace(&path, &all).map_err(|cause| not_written(&path, &cause))?;
            let added: Vec<KeyId> = keys.ids().collect();
            print(&format!(
                "`{}` now has the keys of the backup: {}",
                path.display(),
                shown(&added)
            ));
        }
        None => {
            crate::data_dir::create(&config.data_dir).map_err(failed)?;
            keyring::write_new(&path, &all).map_err(|cause| not_written(&path, &cause))?;
            let ids: Vec<KeyId> = keys.ids().collect();
            print(&format!("`{}` restored, with the keys {}", path.display(), shown(&ids)));
        }
    }
    warn_if_lost(&config, &keyring).await;
    Ok(())
}

/// The lines of a text with keys that a keyring lacks.
fn missing_lines<'a>(text: &'a str, present: &Keyring) -> Vec<&'a str> {
    let lacks = |line: &&str| {
        Keyring::read(line).is_ok_and(|keys| keys.ids().any(|id| !present.contains(id)))
    };
    text.lines().filter(lacks).collect()
}

fn not_written(path: &Path, cause: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write the keyring `{}`: {cause}", path.display()))
}

/// Says so if the data was sealed with a key that is still missing.
async fn warn_if_lost(config: &Config, keyring: &Keyring) {
    let last = stores::read_last_key(config).await.and_then(|(_, last)| last);
    if let Some(last) = last.filter(|last| !keyring.contains(*last)) {
        print_note(&format!(
            "The stored data was last sealed with key {}, which is still missing: the backup is older.",
            keyring::write_id(last)
        ));
    }
}
