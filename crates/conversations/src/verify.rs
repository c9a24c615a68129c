//! Judges sealed rows: opens every value with the keys that are there, and names what is damaged.
//! Used by `throughline keys`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use throughline_gateway::thinking::VaultKey;
use throughline_gateway::thinking::vault::{Record, open_record};
use throughline_sealing::{
    ChatKey, KeyCheck, KeyId, Keyring, OpenError, SealError, envelope, is_envelope, key_id,
    unwrap_key,
};

use crate::chat_seal::{ChatSeal, Field, SealedFields};
use crate::sealed_store::{SealedKind, open_with_keyring};
use crate::store::{ProjectFacts, SealedRow, SealedTable};

/// The start of the scope of a project's runs.
const PROJECT_SCOPE: &str = "project:";
/// The mode of projects whose people hold the key.
const SEALED: &str = "sealed";
/// The bytes of a name of a record in the vault.
const VAULT_NAME: usize = 16;

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The field, such as `content_blocks`, or the column if it has no fields.
    pub field: String,
    /// What is wrong. It contains nothing of the content.
    pub reason: String,
}

/// What is known about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All its values open.
    Intact,
    /// The key of its sealed project is not here. What can be seen without a key is right.
    Locked,
    /// Some of its values do not open.
    Damaged(Vec<Damage>),
}

/// The key that sealed a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealingKey {
    /// A key of the keyring.
    OnKeyring(KeyId),
    /// The key of a sealed project.
    ChatKey,
    /// A key that is not on the keyring, or the row is damaged.
    Unknown,
}

/// What opens the values of a project.
#[derive(Debug)]
enum ProjectKeys {
    /// The server's keyring.
    Managed(ChatSeal),
    /// Keys of its people. `checks` are all keys that it ever had.
    Sealed { seal: ChatSeal, checks: Vec<KeyCheck> },
    /// The facts of the project cannot be read, or there is no such project.
    Unreadable,
}

/// Opens rows with a keyring and with chat keys.
#[derive(Debug)]
pub struct Verifier {
    keyring: Arc<Keyring>,
    chat_keys: Vec<ChatKey>,
    projects: HashMap<String, ProjectKeys>,
    modes: HashMap<String, u64>,
}

/// The result of opening one value. `Ok(false)` if its key is not here.
type Opened = Result<bool, String>;

impl Verifier {
    /// A verifier with these keys.
    pub fn new(keyring: Arc<Keyring>, chat_keys: Vec<ChatKey>) -> Self {
        Self { keyring, chat_keys, projects: HashMap::new(), modes: HashMap::new() }
    }

    /// How many projects there are of each mode.
    pub fn modes(&self) -> &HashMap<String, u64> {
        &self.modes
    }

    /// Learns the keys of a project from its row. Do this before its other rows are judged, and again if
    /// its key may have changed.
    pub fn learn_project(&mut self, row: &SealedRow) {
        let facts = row.facts.as_deref().map(serde_json::from_str::<ProjectFacts>);
        let id = row.id.id.clone();
        let keys = match facts {
            Some(Ok(facts)) => {
                let keys = self.project_keys(&id, &facts);
                if !self.projects.contains_key(&id) {
                    *self.modes.entry(facts.mode).or_default() += 1;
                }
                keys
            }
            Some(Err(_)) | None => ProjectKeys::Unreadable,
        };
        self.projects.insert(id, keys);
    }

    fn project_keys(&self, id: &str, facts: &ProjectFacts) -> ProjectKeys {
        if facts.mode != SEALED {
            return ProjectKeys::Managed(ChatSeal::managed(&self.keyring, id));
        }
        let previous = facts.previous_keys.iter().map(|key| &key.key_check);
        let checks = facts.key_check.iter().chain(previous);
        let checks: Vec<KeyCheck> = checks.filter_map(|check| KeyCheck::read(check).ok()).collect();
        let given = |check: &KeyCheck| self.chat_keys.iter().find(|key| key.key_check() == *check);
        let mut keys: Vec<ChatKey> = checks.iter().filter_map(given).cloned().collect();
        // Each key opens the one before it.
        for previous in &facts.previous_keys {
            let Some(wrapped) = previous.wrapped() else { continue };
            let under = envelope::key_id(&wrapped).ok();
            let under = keys.iter().find(|key| Some(key.key_check()) == under);
            if let Some(Ok(key)) = under.map(|under| unwrap_key(&wrapped, under, id)) {
                keys.push(key);
            }
        }
        ProjectKeys::Sealed { seal: ChatSeal::for_reading(id, keys), checks }
    }

    /// Judges a row.
    pub fn judge(&self, table: SealedTable, row: &SealedRow) -> Verdict {
        let mut found = Found::default();
        match table {
            SealedTable::Project => self.judge_project(row, &mut found),
            SealedTable::Node => self.judge_node(row, &mut found),
            SealedTable::RawResponse => {
                let project = scope(row);
                let value = self.open_field(project, Field::RawResponse, &row.id.id, value(row, 0));
                found.add("raw_response", value);
            }
            SealedTable::Reference => {
                found.add("sealed", self.open_own(SealedKind::Reference, row));
            }
            SealedTable::Run => found.add("sealed", self.open_own(SealedKind::Run, row)),
            SealedTable::Log => {
                let opened = match project_of_run(row) {
                    Some(project) => {
                        let field = Field::Log(row.id.number);
                        self.open_field(project, field, &row.id.id, value(row, 0))
                    }
                    None => self.open_own(SealedKind::Log(row.id.number), row),
                };
                found.add("sealed", opened);
            }
            SealedTable::Channel => found.add("sealed", self.open_own(SealedKind::Channel, row)),
            SealedTable::Room => found.add("sealed", self.open_own(SealedKind::Room, row)),
            SealedTable::RoomLog => {
                let (project, field) = (scope(row), Field::RoomEvent(row.id.number));
                found.add("sealed", self.open_field(project, field, &row.id.id, value(row, 0)));
            }
            SealedTable::Delivery => found.add("sealed", self.open_delivery(row)),
            SealedTable::VaultRecord => found.add("sealed", self.open_vault_record(row)),
        }
        found.verdict()
    }

    fn judge_project(&self, row: &SealedRow, found: &mut Found) {
        let id = row.id.id.as_str();
        match self.projects.get(id) {
            None | Some(ProjectKeys::Unreadable) => {
                found.add("facts", Err("not the JSON of a project".to_owned()));
                return;
            }
            Some(ProjectKeys::Sealed { .. }) => self.judge_previous_keys(row, found),
            Some(ProjectKeys::Managed(_)) => {}
        }
        let sealed = value(row, 0);
        // A sealed project that was created without its key has no content yet.
        if !sealed.is_empty() {
            self.judge_fields(id, "", sealed, &[Field::Project, Field::Title], found);
        }
    }

    /// Checks that each earlier key of a sealed project opens under the key after it.
    fn judge_previous_keys(&self, row: &SealedRow, found: &mut Found) {
        let id = row.id.id.as_str();
        let facts = row.facts.as_deref().and_then(|facts| serde_json::from_str(facts).ok());
        let facts: ProjectFacts = facts.unwrap_or_default();
        let Some(ProjectKeys::Sealed { seal, .. }) = self.projects.get(id) else { return };
        for (at, previous) in facts.previous_keys.iter().enumerate() {
            let wrapped = previous.wrapped().unwrap_or_default();
            let opened = envelope::key_id(&wrapped).and_then(|under| match seal.key(under) {
                Some(under) => unwrap_key(&wrapped, under, id).map(Some),
                None => Ok(None::<ChatKey>),
            });
            let opened = match opened {
                Ok(Some(key)) if key.key_check().to_string() != previous.key_check => {
                    Err("opens as another key than it says".to_owned())
                }
                Ok(key) => Ok(key.is_some()),
                Err(cause) => Err(cause.to_string()),
            };
            found.add(&format!("previousKeys[{at}]"), opened);
        }
    }

    fn judge_node(&self, row: &SealedRow, found: &mut Found) {
        let Some(project) = row.scope.as_deref() else {
            found.add("sealed", self.open_own(SealedKind::Node, row));
            return;
        };
        let node = row.id.id.as_str();
        let all = [Field::Node, Field::Content, Field::ContentBlocks];
        self.judge_fields(project, node, value(row, 0), &all, found);
        let columns = [Field::ThinkingContent, Field::ThinkingSignature];
        for (column, field) in [1, 2].into_iter().zip(columns) {
            if let Some(sealed) = row.values.get(column).and_then(Option::as_deref) {
                found.add(&field.name(), self.open_field(project, field, node, sealed));
            }
        }
    }

    /// Judges the fields of one value. All of them are needed in a sealed project, and the first one in a
    /// managed project.
    fn judge_fields(
        &self,
        project: &str,
        node: &str,
        sealed: &[u8],
        expected: &[Field],
        found: &mut Found,
    ) {
        let (needed, optional) = match self.projects.get(project) {
            Some(ProjectKeys::Sealed { .. }) => (expected, &[][..]),
            _ => expected.split_at(1),
        };
        let Some(fields) = SealedFields::read(sealed) else {
            // Earlier versions stored the first field alone.
            let opened = match is_envelope(sealed) || key_id(sealed).is_some() {
                true => self.open_field(project, expected[0], node, sealed),
                false => Err("the list of its fields is damaged".to_owned()),
            };
            found.add(&expected[0].name(), opened);
            return;
        };
        for field in needed {
            if fields.get(*field).is_none() {
                found.add(&field.name(), Err("missing".to_owned()));
            }
        }
        for field in needed.iter().chain(optional) {
            if let Some(envelope) = fields.get(*field) {
                found.add(&field.name(), self.open_field(project, *field, node, envelope));
            }
        }
        let is_known = |name: &str| expected.iter().any(|field| field.name() == name);
        for name in fields.names().filter(|name| !is_known(name)) {
            found.add(&name.escape_default().to_string(), Err("no such field".to_owned()));
        }
    }

    /// Opens a field of a project.
    fn open_field(&self, project: &str, field: Field, node: &str, sealed: &[u8]) -> Opened {
        let seal = match self.projects.get(project) {
            Some(ProjectKeys::Managed(seal)) => seal,
            Some(ProjectKeys::Sealed { seal, checks }) => {
                let under = envelope::key_id(sealed).map_err(|cause| cause.to_string())?;
                if seal.key(under).is_none() {
                    return match checks.contains(&under) {
                        true => Ok(false),
                        false => Err("names a key that the project never had".to_owned()),
                    };
                }
                seal
            }
            Some(ProjectKeys::Unreadable) => {
                return Err("the facts of its project cannot be read".to_owned());
            }
            None => return Err("its project does not exist".to_owned()),
        };
        let opened = seal.open(field, node, sealed).map_err(|error| {
            match error.cause.downcast_ref::<OpenError>() {
                Some(OpenError::WrongKey(_)) if !seal.is_clients() => {
                    SealError::UnknownKey.to_string()
                }
                _ => error.cause.to_string(),
            }
        })?;
        check_content(field, &opened).map(|()| true)
    }

    /// Opens a value that the keyring has sealed.
    fn open_own(&self, kind: SealedKind, row: &SealedRow) -> Opened {
        let sealed = value(row, 0);
        // Branches have no content, nor have runs of earlier versions.
        if sealed.is_empty() && matches!(kind, SealedKind::Reference | SealedKind::Run) {
            return Ok(true);
        }
        let opened = open_with_keyring(&self.keyring, kind, &row.id.id, sealed)
            .map_err(|error| error.cause.to_string())?;
        check_json(&opened).map(|()| true)
    }

    /// Opens a call of a webhook. Those of sealed projects are sealed under the key of the project.
    fn open_delivery(&self, row: &SealedRow) -> Opened {
        match self.projects.get(scope(row)) {
            Some(ProjectKeys::Sealed { .. }) => {
                self.open_field(scope(row), Field::Delivery, &row.id.id, value(row, 0))
            }
            _ => self.open_own(SealedKind::Delivery, row),
        }
    }

    fn open_vault_record(&self, row: &SealedRow) -> Opened {
        let (names, rest) = value(row, 1).as_chunks::<VAULT_NAME>();
        if !rest.is_empty() {
            return Err("the names of the record are damaged".to_owned());
        }
        let keys = names.iter().copied().map(VaultKey).collect();
        let record = Record { keys, sealed: value(row, 0).to_vec() };
        let opened = open_record(&self.keyring, &record).map_err(|cause| cause.to_string())?;
        // One byte of the version comes first.
        check_json(opened.get(1..).unwrap_or_default()).map(|()| true)
    }

    /// The key that sealed a row, by its first bytes. `None` if nothing is sealed in it.
    pub fn sealing_key(&self, table: SealedTable, row: &SealedRow) -> Option<SealingKey> {
        let sealed = value(row, 0);
        if sealed.is_empty() {
            return None;
        }
        let envelope = SealedFields::first_envelope(sealed).unwrap_or(sealed);
        if !is_envelope(envelope) {
            let id = key_id(envelope).filter(|id| self.keyring.contains(*id));
            return Some(id.map_or(SealingKey::Unknown, SealingKey::OnKeyring));
        }
        let project = match table {
            SealedTable::Log => project_of_run(row),
            _ => row.scope.as_deref(),
        };
        let project = project.unwrap_or_default();
        if let Some(ProjectKeys::Sealed { .. }) = self.projects.get(project) {
            return Some(SealingKey::ChatKey);
        }
        let under = envelope::head_key_id(envelope);
        let keys = self.keyring.ids().zip(self.keyring.chat_keys(project));
        let mut ids = keys.filter(|(_, key)| Some(key.key_check()) == under).map(|(id, _)| id);
        Some(ids.next().map_or(SealingKey::Unknown, SealingKey::OnKeyring))
    }
}

/// The bytes of a column.
fn value(row: &SealedRow, column: usize) -> &[u8] {
    row.values.get(column).and_then(Option::as_deref).unwrap_or_default()
}

/// The project whose key seals the log of a run.
/// What a row belongs to.
fn scope(row: &SealedRow) -> &str {
    row.scope.as_deref().unwrap_or_default()
}

fn project_of_run(row: &SealedRow) -> Option<&str> {
    row.scope.as_deref()?.strip_prefix(PROJECT_SCOPE)
}

/// What the values of a row have shown.
#[derive(Default)]
struct Found {
    damages: Vec<Damage>,
    is_locked: bool,
}

impl Found {
    fn add(&mut self, field: &str, opened: Opened) {
        match opened {
            Ok(true) => {}
            Ok(false) => self.is_locked = true,
            Err(reason) => self.damages.push(Damage { field: field.to_owned(), reason }),
        }
    }

    fn verdict(self) -> Verdict {
        match (self.damages.is_empty(), self.is_locked) {
            (false, _) => Verdict::Damaged(self.damages),
            (true, true) => Verdict::Locked,
            (true, false) => Verdict::Intact,
        }
    }
}

/// Checks that an opened value is what its field holds.
fn check_content(field: Field, opened: &[u8]) -> Result<(), String> {
    match field {
        Field::Title | Field::Content | Field::ThinkingContent | Field::Stream(..) => {
            match std::str::from_utf8(opened) {
                Ok(_) => Ok(()),
                Err(_) => Err("opens, but is not a text".to_owned()),
            }
        }
        Field::RawResponse => match zstd::stream::decode_all(opened) {
            Ok(text) => check_json(&text),
            Err(_) => Err("opens, but is not compressed".to_owned()),
        },
        Field::Project
        | Field::Node
        | Field::ContentBlocks
        | Field::ThinkingSignature
        | Field::Log(_)
        | Field::RoomEvent(_)
        | Field::Delivery => check_json(opened),
    }
}

fn check_json(opened: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<IgnoredAny>(opened) {
        Ok(_) => Ok(()),
        Err(_) => Err("opens, but is not JSON".to_owned()),
    }
}
