//! The across lane: client and backend speak different dialects. Not served yet; the request is read,
//! so that what is wrong with it is told first.

use serde_json::Value;
use throughline_canonical::Fault;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::Reply;
use crate::gateway::Gateway;
use crate::turn::Leg;

impl Gateway {
    /// Asks one backend in words of its own. None if another backend should be asked.
    pub(crate) async fn across(
        &self,
        leg: &Leg<'_>,
        _: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let wanted = leg.read.wanted;
        let model = &leg.read.request()?.value.model;
        Err(Fault::invalid(format!(
            "{wanted:?} of `{model}`: client and backend speak different dialects, which is not served yet"
        )))
    }

    /// What would go to a backend, without sending it.
    pub(crate) async fn report_across(&self, leg: &Leg<'_>) -> Result<Value, Fault> {
        self.across(leg, &mut None).await.map(|_| Value::Null)
    }
}
