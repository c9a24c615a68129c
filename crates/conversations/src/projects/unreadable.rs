//! Items of lists whose stored value does not open: they are shown as damaged, beside the others.

use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use crate::sealed_store::UNREADABLE;

/// Why a part of an answer is missing: its stored value was damaged or moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Unreadable {
    /// The kind of problem, for programs: `/problems/unreadable`.
    pub r#type: String,
    /// What cannot be read, with its id.
    pub detail: String,
    /// What the operator can do.
    pub hint: String,
}

/// A value that was opened, or an empty one and the reason why it does not open. Other errors stay errors.
pub(crate) fn or_unreadable<T: Default>(
    opened: Result<T, Problem>,
) -> Result<(T, Option<Unreadable>), Problem> {
    match opened {
        Ok(value) => Ok((value, None)),
        Err(problem) => match Unreadable::of(&problem) {
            Some(unreadable) => Ok((T::default(), Some(unreadable))),
            None => Err(problem),
        },
    }
}

impl Unreadable {
    fn of(problem: &Problem) -> Option<Self> {
        if problem.fault().code.as_deref() != Some(UNREADABLE) {
            return None;
        }
        let (_, body) = problem.write();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        Some(Self { r#type: text("type"), detail: text("detail"), hint: text("hint") })
    }
}

#[cfg(test)]
mod tests {
    use throughline_gateway::thinking::store::StoreError;
    use throughline_sealing::OpenError;

    use super::*;
    use crate::sealed_store::unreadable;

    #[test]
    fn only_a_value_that_does_not_open_is_replaced() {
        let damaged: Problem = unreadable("n1", OpenError::Altered.into()).into();
        let (value, problem) = or_unreadable::<String>(Err(damaged)).unwrap();
        let problem = problem.expect("a problem");
        assert_eq!((value.as_str(), problem.r#type.as_str()), ("", "/problems/unreadable"));
        assert!(problem.detail.contains("`n1`") && problem.hint.contains("keys verify"));
        assert_eq!(or_unreadable(Ok("text")).unwrap(), ("text", None));
        let failed = StoreError { what: "read a node".to_owned(), cause: "disk is gone".into() };
        assert!(or_unreadable::<String>(Err(failed.into())).is_err());
        assert!(or_unreadable::<String>(Err(Problem::not_found("node", "n1"))).is_err());
    }
}
