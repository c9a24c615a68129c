//! The log as JSON: one object for each line, with the fields of the event and of its spans side by
//! side. So `turn` has the same place on every line.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events as JSON. Fields of spans must be written as JSON too.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = Line(Map::new());
        line.add("timestamp", timestamp);
        line.add("level", event.metadata().level().as_str());
        for span in context
            .event_scope()
            .into_iter()
            .flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.and_then(|fields| serde_json::from_str(fields).ok());
            if let Some(Value::Object(fields)) = fields {
                line.0.extend(fields);
            }
        }
        event.record(&mut line);
        line.add("target", event.metadata().target());
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// A line of the log.
struct Line(Map<String, Value>);

impl Line {
    fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    /// The error with its causes: the outer one says where, the inner one says what happened.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(Some(value), |error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        self.add(field.name(), causes.join(": "));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), format!("{value:?}"));
    }
}
