//! Statements about many rows. To a database, each number of rows is another statement. Only powers
//! of two are used here, so that there are few and they stay prepared.

use super::{Statements, Value};

/// Rows of one statement. Both products allow more values than these have.
pub(crate) const MAX_ROWS: usize = 512;

/// Inserts rows. `table` also names the columns.
pub(crate) async fn insert<const COLUMNS: usize>(
    to: &mut impl Statements,
    table: &str,
    rows: Vec<[Value; COLUMNS]>,
) -> Result<(), sqlx::Error> {
    let mut left = rows.len();
    let mut values = rows.into_iter().flatten();
    while left > 0 {
        let count = MAX_ROWS.min(1 << left.ilog2());
        let row = |row: usize| list(row * COLUMNS, COLUMNS);
        let parameters: Vec<String> = (0..count).map(row).collect();
        let statement = format!("INSERT INTO {table} VALUES {}", parameters.join(", "));
        to.execute(&statement, values.by_ref().take(count * COLUMNS).collect()).await?;
        left -= count;
    }
    Ok(())
}

/// A list for `IN`, with its values. There must be one at least and [`MAX_ROWS`] at most; the last
/// one is repeated.
pub(crate) fn one_of(texts: &[String]) -> (String, Vec<Value>) {
    let count = texts.len().next_power_of_two();
    let repeated = std::iter::repeat(texts.last()).flatten();
    let values = texts.iter().chain(repeated).take(count);
    (list(0, count), values.map(|text| text.as_str().into()).collect())
}

/// Parameters in brackets: `($3, $4)` for two after the second.
fn list(after: usize, count: usize) -> String {
    let numbers: Vec<String> = (after + 1..=after + count).map(|at| format!("${at}")).collect();
    format!("({})", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Row, values};

    /// Records statements.
    #[derive(Default)]
    struct Recorded(Vec<(String, Vec<Value>)>);

    impl Statements for Recorded {
        async fn fetch(&mut self, _: &str, _: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
            Ok(Vec::new())
        }

        async fn execute(
            &mut self,
            statement: &str,
            values: Vec<Value>,
        ) -> Result<u64, sqlx::Error> {
            self.0.push((statement.to_owned(), values));
            Ok(0)
        }
    }

    #[tokio::test]
    async fn rows_are_inserted_with_few_different_statements() {
        let mut recorded = Recorded::default();
        let rows = (0..3_u64).map(|at| [at.into(), "x".into()]).collect();
        insert(&mut recorded, "t (a, b)", rows).await.unwrap();
        let statements: Vec<&str> = recorded.0.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(
            statements,
            [
                "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)",
                "INSERT INTO t (a, b) VALUES ($1, $2)"
            ]
        );
        assert_eq!(recorded.0[1].1, values![2_u64, "x"]);

        let mut different = std::collections::BTreeSet::new();
        for count in 1..2 * MAX_ROWS as u64 {
            let mut recorded = Recorded::default();
            insert(&mut recorded, "t (a)", (0..count).map(|at| [at.into()]).collect())
                .await
                .unwrap();
            let all: Vec<Value> =
                recorded.0.iter().flat_map(|(_, values)| values.clone()).collect();
            assert_eq!(all, (0..count).map(Value::from).collect::<Vec<_>>());
            different.extend(recorded.0.into_iter().map(|(statement, _)| statement));
        }
        assert_eq!(different.len(), 10);
    }

    #[test]
    fn list_of_texts_is_filled_up_with_its_last_one() {
        let texts = ["a", "b", "c"].map(str::to_owned);
        let (list, values) = one_of(&texts);
        assert_eq!(list, "($1, $2, $3, $4)");
        assert_eq!(values, values!["a", "b", "c", "c"]);
        assert_eq!(one_of(&texts[..1]).0, "($1)");
    }
}
