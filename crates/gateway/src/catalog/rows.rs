//! The rows of the table, and how they are read from TOML. A row holds only what differs from rows
//! with shorter patterns.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use throughline_canonical::Effort;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::model::{ForcedTools, Form, Model, Off, ResponsesForTools, Sampling, Shows};
use super::pattern;
use super::price::Price;

/// One row of the table. Many fields: each one is a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) patterns: Vec<String>,
    pub(super) thinking: Option<Form>,
    pub(super) efforts: Option<Vec<Effort>>,
    pub(super) budget_min: Option<u64>,
    pub(super) budget_max: Option<u64>,
    pub(super) refuses_budget: Option<bool>,
    pub(super) budget_below_limit: Option<bool>,
    pub(super) off: Option<Off>,
    pub(super) unasked: Option<bool>,
    pub(super) sampling: Option<Sampling>,
    pub(super) forced_tools: Option<ForcedTools>,
    pub(super) shows: Option<Shows>,
    pub(super) responses_for_tools: Option<ResponsesForTools>,
    pub(super) signatures_enforced: Option<bool>,
    pub(super) preserved: Option<bool>,
    pub(super) account_bound: Option<bool>,
    pub(super) vision: Option<bool>,
    pub(super) lacks_tools: Option<bool>,
    pub(super) max_output: Option<u64>,
    pub(super) context: Option<u64>,
    pub(super) price: Option<Price>,
}

/// The keys of a row, for error messages.
const KEYS: &str = "`pattern`, `thinking`, `efforts`, `budget_min`, `budget_max`, \
    `refuses_budget`, `budget_below_limit`, `off`, `unasked`, `sampling`, `forced_tools`, `shows`, \
    `responses_for_tools`, `signatures_enforced`, `preserved`, `account_bound`, `vision`, \
    `lacks_tools`, `max_output`, `context`, `price`";

/// All mistakes in a table of models.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CatalogError {
    /// The mistakes in the order of the text. There is at least one.
    pub mistakes: Vec<CatalogMistake>,
}

/// One mistake in a table of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogMistake {
    /// Its byte range in the text.
    pub span: Range<usize>,
    /// Its line, starting at one.
    pub line: usize,
    /// The error message. It names the key.
    pub message: String,
}

impl fmt::Display for CatalogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            write!(formatter, "{gap}line {}: {}", mistake.line, mistake.message)?;
        }
        Ok(())
    }
}

impl Row {
    /// The weight of the longest pattern that matches a name.
    pub(super) fn weight(&self, name: &str) -> Option<usize> {
        let matching = self.patterns.iter().filter(|row| pattern::matches(row, name));
        matching.map(|row| pattern::weight(row)).max()
    }

    /// Writes the row's values over those of the model.
    pub(super) fn apply(&self, model: &mut Model) {
        fn over<T: Clone>(known: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                known.clone_from(value);
            }
        }
        model.thinking = self.thinking.or(model.thinking);
        model.budget_max = self.budget_max.or(model.budget_max);
        model.shows = self.shows.or(model.shows);
        model.max_output = self.max_output.or(model.max_output);
        model.context = self.context.or(model.context);
        model.price = self.price.or(model.price);
        over(&mut model.efforts, &self.efforts);
        over(&mut model.budget_min, &self.budget_min);
        over(&mut model.refuses_budget, &self.refuses_budget);
        over(&mut model.budget_below_limit, &self.budget_below_limit);
        over(&mut model.off, &self.off);
        over(&mut model.unasked, &self.unasked);
        over(&mut model.sampling, &self.sampling);
        over(&mut model.forced_tools, &self.forced_tools);
        over(&mut model.responses_for_tools, &self.responses_for_tools);
        over(&mut model.signatures_enforced, &self.signatures_enforced);
        over(&mut model.preserved, &self.preserved);
        over(&mut model.account_bound, &self.account_bound);
        over(&mut model.vision, &self.vision);
        over(&mut model.lacks_tools, &self.lacks_tools);
    }
}

/// Reads a table, or returns everything that is wrong with it.
pub(super) fn read(text: &str) -> Result<Vec<Row>, CatalogError> {
    let mut reader = TableReader { text, mistakes: Vec::new() };
    let rows = match DeTable::parse(text) {
        Ok(table) => reader.table(table.into_inner()),
        Err(error) => {
            reader.report(error.span(), format!("not TOML: {}", error.message()));
            Vec::new()
        }
    };
    if reader.mistakes.is_empty() {
        return Ok(rows);
    }
    let mut mistakes = reader.mistakes;
    mistakes.sort_by_key(|mistake| mistake.span.start);
    Err(CatalogError { mistakes })
}

struct TableReader<'a> {
    text: &'a str,
    mistakes: Vec<CatalogMistake>,
}

impl TableReader<'_> {
    fn report(&mut self, span: Option<Range<usize>>, message: String) {
        let span = span.unwrap_or(0..0);
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        self.mistakes.push(CatalogMistake {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            span,
            message,
        });
    }

    fn table(&mut self, table: DeTable<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (key, value) in table {
            let name = key.get_ref();
            if name != "model" {
                self.report(
                    Some(key.span()),
                    format!("unknown key `{name}`: a table of models has only `[[model]]`"),
                );
                continue;
            }
            let span = value.span();
            let DeValue::Array(elements) = value.into_inner() else {
                self.report(Some(span), "`model` is not a list: write `[[model]]`".to_owned());
                continue;
            };
            for element in elements {
                let span = element.span();
                match element.into_inner() {
                    DeValue::Table(row) => rows.push(self.row(row, span)),
                    _ => self.report(
                        Some(span),
                        "an element of `model` is not a table: write `[[model]]`".to_owned(),
                    ),
                }
            }
        }
        rows
    }

    fn row(&mut self, table: DeTable<'_>, span: Range<usize>) -> Row {
        let mut row = Row::default();
        let mut named = false;
        let mut bound = None;
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let at = value.span();
            named |= name == "pattern";
            if name == "budget_max" {
                bound = Some(at.clone());
            }
            let read = match name {
                "pattern" => read_patterns(value).map(|patterns| row.patterns = patterns),
                "thinking" => set(&mut row.thinking, value),
                "efforts" => set(&mut row.efforts, value),
                "budget_min" => set(&mut row.budget_min, value),
                "budget_max" => set(&mut row.budget_max, value),
                "refuses_budget" => set(&mut row.refuses_budget, value),
                "budget_below_limit" => set(&mut row.budget_below_limit, value),
                "off" => set(&mut row.off, value),
                "unasked" => set(&mut row.unasked, value),
                "sampling" => set(&mut row.sampling, value),
                "forced_tools" => set(&mut row.forced_tools, value),
                "shows" => set(&mut row.shows, value),
                "responses_for_tools" => set(&mut row.responses_for_tools, value),
                "signatures_enforced" => set(&mut row.signatures_enforced, value),
                "preserved" => set(&mut row.preserved, value),
                "account_bound" => set(&mut row.account_bound, value),
                "vision" => set(&mut row.vision, value),
                "lacks_tools" => set(&mut row.lacks_tools, value),
                "max_output" => set(&mut row.max_output, value),
                "context" => set(&mut row.context, value),
                "price" => set(&mut row.price, value),
                _ => {
                    let message =
                        format!("unknown key `{name}` of a model: expected one of {KEYS}");
                    self.report(Some(key.span()), message);
                    continue;
                }
            };
            if let Err(error) = read {
                // Replace the parser's name of the type.
                let found = error.message().replace("u64", "a whole number");
                let message = format!("`{name}`: {found}");
                self.report(error.span().or(Some(at)), message);
            } else if let Some(message) = check_value(name, &row) {
                self.report(Some(at), message);
            }
        }
        if let Some((least, most)) = row.budget_min.zip(row.budget_max)
            && least > most
        {
            let message = format!("`budget_max` is {most}, less than `budget_min`, {least}");
            self.report(bound, message);
        }
        if !named {
            let message = "`pattern` is missing: a model needs a line `pattern = \"...\"`";
            self.report(Some(span), message.to_owned());
        }
        row
    }
}

/// Checks a value whose type is right.
fn check_value(key: &str, row: &Row) -> Option<String> {
    let message = match key {
        "pattern" if row.patterns.is_empty() || row.patterns.iter().any(String::is_empty) => {
            "`pattern` is empty: expected a model name, in which `*` matches anything"
        }
        "max_output" if row.max_output == Some(0) => "`max_output` is 0: expected at least 1",
        "context" if row.context == Some(0) => "`context` is 0: expected at least 1",
        _ => return None,
    };
    Some(message.to_owned())
}

fn set<'de, T: Deserialize<'de>>(
    target: &mut Option<T>,
    value: Spanned<DeValue<'de>>,
) -> Result<(), Error> {
    *target = Some(T::deserialize(value.into_deserializer())?);
    Ok(())
}

/// One pattern or several, in lower case.
fn read_patterns(value: Spanned<DeValue<'_>>) -> Result<Vec<String>, Error> {
    let patterns = match value.get_ref() {
        DeValue::Array(_) => Vec::<String>::deserialize(value.into_deserializer())?,
        _ => vec![String::deserialize(value.into_deserializer())?],
    };
    let lower = patterns.iter().map(|pattern| pattern.to_lowercase());
    Ok(lower.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_sets_every_column() {
        let text = r#"
[[model]]
pattern = ["My-*", "ours"]
thinking = "budget"
efforts = ["low", "xhigh"]
budget_min = 10
budget_max = 20
refuses_budget = true
budget_below_limit = true
off = "between_tools"
unasked = true
sampling = "not_thinking"
forced_tools = "not_with_budget"
shows = "nothing"
responses_for_tools = "always"
signatures_enforced = true
preserved = true
account_bound = true
vision = true
lacks_tools = true
max_output = 30
context = 40
price = { date = "2026-11-18", input = 2, output = 4.5 }
"#;
        let rows = read(text).unwrap();
        let mut model = Model::default();
        rows[0].apply(&mut model);
        let expected = Model {
            thinking: Some(Form::Budget),
            efforts: vec![Effort::Low, Effort::XHigh],
            budget_min: 10,
            budget_max: Some(20),
            refuses_budget: true,
            budget_below_limit: true,
            off: Off::BetweenTools,
            unasked: true,
            sampling: Sampling::NotThinking,
            forced_tools: ForcedTools::NotWithBudget,
            shows: Some(Shows::Nothing),
            responses_for_tools: ResponsesForTools::Always,
            signatures_enforced: true,
            preserved: true,
            account_bound: true,
            vision: true,
            lacks_tools: true,
            max_output: Some(30),
            context: Some(40),
            price: rows[0].price,
        };
        assert!(model.price.is_some());
        assert_eq!(model, expected);
        assert_eq!(rows[0].patterns, ["my-*", "ours"]);
        let page = include_str!("../../../../docs/models.md");
        for (key, _) in text.lines().filter_map(|line| line.split_once(" =")) {
            assert!(KEYS.contains(&format!("`{key}`")), "{key}");
            assert!(page.contains(&format!("`{key}`")), "{key} is not documented");
        }
        let example = page.split("```").nth(1).and_then(|it| it.strip_prefix("toml\n"));
        assert_eq!(read(example.unwrap()).unwrap().len(), 2);
        // An empty row changes nothing.
        Row::default().apply(&mut model);
        assert_eq!(model, expected);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line_and_key() {
        let text = r#"other = 1
[[model]]
pattern = ""
max_output = "many"
[[model]]
thinking = "loud"
effort = ["low"]
[[model]]
pattern = "a"
efforts = ["low", "some"]
budget_min = 9
budget_max = 3
context = 0
"#;
        let error = read(text).unwrap_err();
        let found: Vec<(usize, &str)> = error
            .mistakes
            .iter()
            .map(|mistake| (mistake.line, mistake.message.split('`').nth(1).unwrap()))
            .collect();
        let expected = [
            (1, "other"),
            (3, "pattern"),
            (4, "max_output"),
            (5, "pattern"),
            (6, "thinking"),
            (7, "effort"),
            (10, "efforts"),
            (12, "budget_max"),
            (13, "context"),
        ];
        assert_eq!(found, expected, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("line 4: `max_output`: invalid type: string \"many\", expected a whole"),
            "{text}"
        );
        assert!(text.contains("line 7: unknown key `effort`"), "{text}");
    }

    #[test]
    fn invalid_table_is_reported() {
        for (text, line, words) in [
            ("\n[[model]\n", 2, "not TOML: "),
            ("model = 1", 1, "`model` is not a list"),
            ("model = [1]", 1, "an element of `model` is not a table"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.mistakes.len(), 1, "{error}");
            assert_eq!(error.mistakes[0].line, line, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(read("").unwrap(), []);
    }
}
