//! What the databases have in common: statements are written once, with numbered parameters (`$1`),
//! and run on any of them. The folder of a product has its connections, its migrations and the few
//! expressions that differ.

use std::fmt::Debug;
use std::future::Future;

use throughline_gateway::thinking::store::StoreError;

pub(crate) mod batch;
pub(crate) mod conversations;
pub(crate) mod many_rows;
pub(crate) mod memory_rows;
pub(crate) mod sealed_rows;

/// A value of a statement's parameter or of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Option<String>),
    Integer(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(Some(signed(number)))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        (number as u64).into()
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        Self::Integer(number.map(signed))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        u64::from(flag).into()
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Databases have only signed integers; ours are counts and times, which fit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A row of a result. Values are taken in the order of the columns.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) std::vec::IntoIter<Value>);

impl Row {
    fn wrong(what: &str) -> sqlx::Error {
        sqlx::Error::Decode(format!("a column is not {what}").into())
    }

    /// The next column, a text that may be missing.
    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, sqlx::Error> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(Self::wrong("a text")),
        }
    }

    /// The next column, a text.
    pub(crate) fn text(&mut self) -> Result<String, sqlx::Error> {
        self.optional_text()?.ok_or_else(|| Self::wrong("a text"))
    }

    /// The next column, a number that may be missing.
    pub(crate) fn optional_number(&mut self) -> Result<Option<u64>, sqlx::Error> {
        match self.0.next() {
            Some(Value::Integer(number)) => Ok(number.map(unsigned)),
            _ => Err(Self::wrong("a number")),
        }
    }

    /// The next column, a number.
    pub(crate) fn number(&mut self) -> Result<u64, sqlx::Error> {
        self.optional_number()?.ok_or_else(|| Self::wrong("a number"))
    }

    /// The next column, a flag.
    pub(crate) fn flag(&mut self) -> Result<bool, sqlx::Error> {
        Ok(self.number()? != 0)
    }

    /// The next column, bytes that may be missing.
    pub(crate) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, sqlx::Error> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(Self::wrong("bytes")),
        }
    }

    /// The next column as it is stored. An expression without a value has the type of a text.
    pub(crate) fn stored_bytes(&mut self) -> Result<Option<Vec<u8>>, sqlx::Error> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(Value::Text(text)) => Ok(text.map(String::into_bytes)),
            _ => Err(Self::wrong("bytes")),
        }
    }

    /// The next column, bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, sqlx::Error> {
        self.optional_bytes()?.ok_or_else(|| Self::wrong("bytes"))
    }
}

/// Runs statements.
pub(crate) trait Statements: Send {
    /// Runs a statement and returns its rows.
    fn fetch(
        &mut self,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;

    /// Runs a statement and returns the number of changed rows.
    fn execute(
        &mut self,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// A transaction that writes. Dropping it writes nothing.
pub(crate) trait WriteTransaction: Statements {
    /// Writes everything.
    fn commit(self) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Writes nothing.
    fn roll_back(self) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A database.
pub(crate) trait Database: Clone + Debug + Send + Sync + 'static {
    /// An expression for the milliseconds since 1970, by the clock that all its clients share.
    const NOW: &'static str;
    /// The end of a query that locks its rows until the transaction ends. Empty where only one
    /// transaction writes at a time.
    const HOLD: &'static str;
    /// Whether other processes may use it at the same time.
    const IS_SHARED: bool;

    /// Starts a transaction that writes.
    fn begin(&self) -> impl Future<Output = Result<impl WriteTransaction, sqlx::Error>> + Send;

    /// Reads rows outside a transaction.
    fn read(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;

    /// Runs one statement that writes, and returns the number of changed rows.
    fn run(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Checks that a write succeeds now.
    fn check_write(&self) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// The values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::sql::Value::from($value)),*]
    };
}
pub(crate) use values;

/// A failed operation.
pub(crate) fn error(
    what: impl Into<String>,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    StoreError { what: what.into(), cause: Box::new(cause) }
}
