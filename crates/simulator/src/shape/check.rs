//! The walker: compares a body with its table and reports the first problem.
//!
//! Listed members are checked in the table's order.

use serde_json::{Map, Value};

use super::{Flags, Member, Presence, Problem, Shape, Step, Tagged};
use crate::refusal::Refusal;

/// Checks bodies of one dialect.
pub(crate) struct Checker {
    pub(crate) flags: Flags,
    /// A member that is null counts as absent.
    pub(crate) null_is_absent: bool,
    /// Unknown members are reported before problems with listed ones.
    pub(crate) unknown_first: bool,
    /// Writes a problem as the provider reports it.
    pub(crate) refuse: fn(&[Step<'_>], &Problem<'_>) -> Refusal,
}

type Path<'a> = Vec<Step<'a>>;

impl Checker {
    /// Refuses a body that does not have this shape.
    pub(crate) fn check(&self, body: &Map<String, Value>, shape: &Shape) -> Result<(), Refusal> {
        let mut path = Path::new();
        self.object(body, shape, &mut path)
    }

    /// Refuses one value below the body's root; null is fine where it counts as absent.
    pub(crate) fn check_at(
        &self,
        names: &[&str],
        value: &Value,
        shape: &Shape,
    ) -> Result<(), Refusal> {
        let mut path: Path<'_> = names.iter().copied().map(Step::Member).collect();
        if self.is_absent(value) {
            return Ok(());
        }
        self.value(value, shape, &mut path)
    }

    fn is_absent(&self, value: &Value) -> bool {
        self.null_is_absent && value.is_null()
    }

    fn holds(&self, flags: Flags) -> bool {
        self.flags & flags == flags
    }

    /// The shape that counts under the conditions of this request.
    fn resolve<'a>(&self, shape: &'a Shape) -> &'a Shape {
        match shape {
            Shape::When(flags, yes, no) => self.resolve(if self.holds(*flags) { yes } else { no }),
            shape => shape,
        }
    }

    fn value<'a>(
        &self,
        value: &'a Value,
        expected: &'a Shape,
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        let expected = self.resolve(expected);
        let Some(shape) = self.fitting(value, expected) else {
            return self.fail(path, &Problem::Type { expected, found: value });
        };
        match (shape, value) {
            (Shape::Integer(min, max), _) => {
                let in_range = (*min..=*max).contains(&value.as_i64().unwrap_or(i64::MAX));
                self.ensure(in_range, path, &Problem::Range { expected: shape, found: value })
            }
            (Shape::Number(min, max), _) => {
                let in_range = (*min..=*max).contains(&value.as_f64().unwrap_or_default());
                self.ensure(in_range, path, &Problem::Range { expected: shape, found: value })
            }
            (Shape::Pattern(name, fits), Value::String(found)) => {
                self.ensure(fits(found), path, &Problem::Pattern { name, found })
            }
            (Shape::Word(words), Value::String(found)) => {
                let known = words.contains(&found.as_str());
                self.ensure(known, path, &Problem::Word { expected, words, found })
            }
            (Shape::WordAnyCase(words), Value::String(found)) => {
                let known = words.iter().any(|word| word.eq_ignore_ascii_case(found));
                self.ensure(known, path, &Problem::Word { expected, words, found })
            }
            (Shape::List(item), Value::Array(items)) => self.items(items, item, path),
            (Shape::ListOf(min, max, item), Value::Array(items)) => {
                let fits = (*min..=*max).contains(&items.len());
                self.ensure(fits, path, &Problem::Length { max: *max, found: items.len() })?;
                self.items(items, item, path)
            }
            (Shape::Rule(inner, rule), _) => {
                self.value(value, inner, path)?;
                rule(value, path)
            }
            (shape, Value::Object(members)) => self.object(members, shape, path),
            _ => Ok(()),
        }
    }

    /// The shape below names and alternatives that has the value's JSON type, if any.
    fn fitting<'a>(&self, value: &Value, shape: &'a Shape) -> Option<&'a Shape> {
        let shape = self.resolve(shape);
        let fits = match shape {
            Shape::Either(shapes) => {
                return shapes.iter().find_map(|shape| self.fitting(value, shape));
            }
            Shape::Named(_, inner) => return self.fitting(value, inner),
            Shape::Rule(inner, _) => self.fitting(value, inner).is_some(),
            Shape::Any => true,
            Shape::Refused | Shape::When(..) => false,
            Shape::Null => value.is_null(),
            Shape::Boolean => value.is_boolean(),
            Shape::Integer(..) => value.is_i64() || value.is_u64(),
            Shape::Number(..) => value.is_number(),
            Shape::Text | Shape::Pattern(..) | Shape::Word(_) | Shape::WordAnyCase(_) => {
                value.is_string()
            }
            Shape::Object
            | Shape::Open(_)
            | Shape::Closed(_)
            | Shape::ClosedWhen(..)
            | Shape::Tagged(_) => value.is_object(),
            Shape::List(_) | Shape::ListOf(..) => value.is_array(),
        };
        fits.then_some(shape)
    }

    fn items<'a>(
        &self,
        items: &'a [Value],
        shape: &'a Shape,
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        items.iter().enumerate().try_for_each(|(index, item)| {
            path.push(Step::Index(index));
            self.value(item, shape, path)?;
            path.pop();
            Ok(())
        })
    }

    fn object<'a>(
        &self,
        members: &'a Map<String, Value>,
        shape: &'a Shape,
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        let (listed, closed) = match self.resolve(shape) {
            Shape::Open(listed) => (listed, false),
            Shape::Closed(listed) => (listed, true),
            Shape::ClosedWhen(flags, listed) => (listed, self.holds(*flags)),
            Shape::Tagged(tagged) => return self.tagged(members, tagged, path),
            Shape::Named(_, inner) => return self.object(members, inner, path),
            _ => return Ok(()),
        };
        if closed && self.unknown_first {
            self.refuse_unlisted(members, listed, path)?;
        }
        self.listed(members, listed, path)?;
        if closed && !self.unknown_first {
            self.refuse_unlisted(members, listed, path)?;
        }
        Ok(())
    }

    fn listed<'a>(
        &self,
        members: &'a Map<String, Value>,
        listed: &'a [Member],
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        for member in listed.iter().filter(|member| self.holds(member.needs)) {
            path.push(Step::Member(member.name));
            let value = members.get(member.name);
            let nullable = member.presence != Presence::NotNull;
            match value.filter(|value| !(nullable && self.is_absent(value))) {
                _ if matches!(self.resolve(&member.shape), Shape::Refused) => {
                    self.ensure(value.is_none(), path, &Problem::Unknown)?;
                }
                Some(value) => self.value(value, &member.shape, path)?,
                None if member.presence == Presence::Optional => {}
                None => self.missing(&member.shape, path)?,
            }
            path.pop();
        }
        Ok(())
    }

    /// Reports a missing object by the first of its members that is required.
    fn missing(&self, shape: &Shape, path: &[Step<'_>]) -> Result<(), Refusal> {
        match self.resolve(shape) {
            Shape::Open(_) | Shape::Closed(_) | Shape::ClosedWhen(..) => {
                self.object(&Map::new(), shape, &mut path.to_vec())
            }
            _ => self.fail(path, &Problem::Missing),
        }
    }

    fn refuse_unlisted<'a>(
        &self,
        members: &'a Map<String, Value>,
        listed: &[Member],
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        let is_listed =
            |key: &str| listed.iter().any(|member| member.name == key && self.holds(member.needs));
        match members.keys().find(|key| !is_listed(key)) {
            Some(key) => {
                path.push(Step::Member(key));
                self.fail(path, &Problem::Unknown)
            }
            None => Ok(()),
        }
    }

    fn tagged<'a>(
        &self,
        members: &'a Map<String, Value>,
        tagged: &'a Tagged,
        path: &mut Path<'a>,
    ) -> Result<(), Refusal> {
        let found = match members.get(tagged.tag) {
            Some(Value::String(found)) => found.as_str(),
            None | Some(Value::Null) => match (tagged.untagged)(members) {
                Some(found) => found,
                None => {
                    path.push(Step::Member(tagged.tag));
                    return self.fail(path, &Problem::Missing);
                }
            },
            Some(found) => {
                path.push(Step::Member(tagged.tag));
                return self.fail(path, &Problem::Type { expected: &Shape::Text, found });
            }
        };
        // The case without a name is for objects without a tag only.
        let is_tagged = members.get(tagged.tag).is_some_and(Value::is_string);
        let case = tagged.cases.iter().find(|(name, _)| *name == found);
        let case = case.filter(|(name, _)| !(is_tagged && name.is_empty()));
        let shape = self.resolve(case.map_or(&tagged.others, |(_, shape)| shape));
        if matches!(shape, Shape::Refused) {
            let named = |(name, shape): &&(&'static str, Shape)| {
                !name.is_empty() && !matches!(shape, Shape::Refused)
            };
            let known = tagged.cases.iter().filter(named).map(|(name, _)| *name).collect();
            return self.fail(path, &Problem::Tag { tag: tagged.tag, known, found });
        }
        if tagged.in_path {
            path.push(Step::Tag(found));
        }
        self.object(members, shape, path)?;
        if tagged.in_path {
            path.pop();
        }
        Ok(())
    }

    fn ensure(&self, fits: bool, path: &[Step<'_>], problem: &Problem<'_>) -> Result<(), Refusal> {
        if fits { Ok(()) } else { self.fail(path, problem) }
    }

    fn fail(&self, path: &[Step<'_>], problem: &Problem<'_>) -> Result<(), Refusal> {
        Err((self.refuse)(path, problem))
    }
}
