//! A conversation store in RAM.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
#[cfg(test)]
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::thinking::store::StoreFuture;
use throughline_gateway::unix_ms;

use crate::in_memory_rooms::Rooms;
use crate::in_memory_users::Users;
use crate::store::{
    Branch, Changed, Commit, CostSum, Detail, LogPiece, Move, Node, NodeFacts, NodeStore, Outcome,
    Page, Piece, Project, ProjectStore, Reference, Run, RunCost, RunEnd, RunStatus, RunStore,
    SealedUnder, project_scope,
};

/// A conversation store in RAM.
#[derive(Debug, Default)]
pub struct InMemory {
    pub(crate) contents: Mutex<Contents>,
    pub(crate) users: Mutex<Users>,
    /// How many of the next reads of logs fail.
    #[cfg(test)]
    failing_reads: std::sync::atomic::AtomicUsize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    nodes: BTreeMap<String, Node>,
    raw: BTreeMap<String, Vec<u8>>,
    references: BTreeMap<String, Reference>,
    pub(crate) projects: BTreeMap<String, Project>,
    runs: BTreeMap<String, Run>,
    logs: BTreeMap<String, Vec<Piece>>,
    /// When each instance was last alive.
    beats: BTreeMap<String, u64>,
    /// When a reader of each run was last recorded.
    reads: BTreeMap<String, u64>,
    /// The runs that a client has asked to stop.
    stops: BTreeSet<String>,
    /// What runs have cost.
    costs: BTreeMap<String, RunCost>,
    pub(crate) rooms: Rooms,
}

impl Contents {
    fn path(&self, id: &str, most: usize, detail: Detail) -> Vec<Node> {
        let mut path = Vec::new();
        let mut next = self.nodes.get(id);
        while let Some(node) = next.filter(|_| path.len() < most) {
            path.push(node.clone().with_detail(detail));
            next = node.parent.as_ref().and_then(|id| self.nodes.get(id));
        }
        path.reverse();
        path
    }

    fn commit(&mut self, commit: Commit) -> Outcome {
        let Commit { sealed_under, nodes, reference, moves, start, end, entries, cost } = commit;
        // A repeated request finds its run, whatever has changed since.
        if let Some(run) = &start
            && let Some(name) = &run.name
            && let Some(known) = self.named_run(&run.owner, &run.scope, name)
        {
            return Outcome::Repeated { run: known.id.clone() };
        }
        if let Some(SealedUnder { project, key_check }) = &sealed_under {
            let project = self.projects.get(project);
            if project.and_then(|project| project.facts.key_check.as_ref()) != Some(key_check) {
                return Outcome::KeyChanged;
            }
        }
        let ending = end.as_ref().map(|end| end.run.clone());
        if let Some(reference) = reference
            && !self.add_reference(reference)
        {
            return Outcome::NameTaken;
        }
        if let Some(end) = end
            && !self.end_run(end)
        {
            return Outcome::Fenced;
        }
        if let Some(moves) = moves {
            let expires = nodes.last().and_then(|node| node.expires);
            let outcome = self.move_reference(moves, expires, ending.as_deref());
            if outcome != Outcome::Written {
                return outcome;
            }
        }
        if let Some(run) = start {
            let outcome = self.start_run(run);
            if outcome != Outcome::Written {
                return outcome;
            }
        }
        for node in nodes {
            self.put(node);
        }
        if let Some(cost) = cost {
            self.costs.entry(cost.run.clone()).or_insert(cost);
        }
        self.rooms.log(entries)
    }

    /// The ids of the runs of a scope that are under way.
    pub(crate) fn running(&self, owner: &str, scope: &str) -> Vec<String> {
        let is_running = |run: &&Run| {
            run.owner == owner && run.scope == scope && run.status == RunStatus::Running
        };
        self.runs.values().filter(is_running).map(|run| run.id.clone()).collect()
    }

    /// Adds a reference. Returns false if there is one with this id, or its project has a branch of this
    /// name.
    fn add_reference(&mut self, reference: Reference) -> bool {
        if self.references.contains_key(&reference.id) {
            return false;
        }
        if let Some(branch) = &reference.branch
            && self.is_taken(&reference.id, branch)
        {
            return false;
        }
        self.references.insert(reference.id.clone(), reference);
        true
    }

    /// Whether another branch of the project has this name.
    fn is_taken(&self, id: &str, branch: &Branch) -> bool {
        let mut others = self.references.values().filter(|other| other.id != id);
        others.any(|other| {
            let theirs = other.branch.as_ref();
            theirs.is_some_and(|other| {
                (&other.project, &other.name) == (&branch.project, &branch.name)
            })
        })
    }

    fn move_reference(
        &mut self,
        moves: Move,
        expires: Option<u64>,
        ending: Option<&str>,
    ) -> Outcome {
        let active =
            self.active_run(&moves.reference).filter(|run| Some(run.id.as_str()) != ending);
        if let Some(run) = active {
            return Outcome::Busy { run: run.id.clone() };
        }
        match self.references.get_mut(&moves.reference) {
            Some(reference) if reference.head == moves.from => {
                reference.head = moves.to;
                reference.expires = later(reference.expires, expires);
                Outcome::Written
            }
            _ => Outcome::Stale,
        }
    }

    fn active_run(&self, reference: &str) -> Option<&Run> {
        let mut active = self.runs.values().filter(|run| run.status == RunStatus::Running);
        active.find(|run| run.reference.as_deref() == Some(reference))
    }

    fn named_run(&self, owner: &str, scope: &str, name: &str) -> Option<&Run> {
        self.runs.values().find(|run| {
            (run.owner.as_str(), run.scope.as_str(), run.name.as_deref())
                == (owner, scope, Some(name))
        })
    }

    fn start_run(&mut self, run: Run) -> Outcome {
        if let Some(reference) = &run.reference
            && let Some(known) = self.active_run(reference)
        {
            return Outcome::Busy { run: known.id.clone() };
        }
        self.runs.insert(run.id.clone(), run);
        Outcome::Written
    }

    /// The run, if it is in progress under this epoch.
    fn writable(&mut self, id: &str, epoch: u64) -> Option<&mut Run> {
        let run = self.runs.get_mut(id)?;
        (run.status == RunStatus::Running && run.epoch == epoch).then_some(run)
    }

    fn end_run(&mut self, end: RunEnd) -> bool {
        let Some(run) = self.writable(&end.run, end.epoch) else {
            return false;
        };
        run.status = end.status;
        run.expires = end.expires;
        run.sealed = end.sealed;
        true
    }

    fn put(&mut self, mut node: Node) {
        // A node that follows itself would make the walk endless.
        let mut next = node.parent.clone();
        while let Some(id) = next.filter(|id| *id != node.id) {
            let Some(above) = self.nodes.get_mut(&id) else {
                break;
            };
            above.expires = later(above.expires, node.expires);
            next = above.parent.clone();
        }
        if let Some(raw) = node.in_project.as_mut().and_then(|node| node.sealed_raw.take()) {
            self.raw.insert(node.id.clone(), raw);
        }
        self.nodes.insert(node.id.clone(), node);
    }

    fn remove(&mut self, id: &str) -> bool {
        // A stored response and its run have the same id.
        self.remove_run(id);
        self.raw.remove(id);
        self.nodes.remove(id).is_some()
    }

    fn remove_run(&mut self, id: &str) -> bool {
        self.logs.remove(id);
        self.reads.remove(id);
        self.runs.remove(id).is_some()
    }

    fn remove_project(&mut self, id: &str) -> bool {
        self.costs.retain(|_, of| of.project != id);
        let is_inside = |node: &Node| node.in_project.as_ref().is_some_and(|of| of.project == id);
        let nodes: Vec<String> = self
            .nodes
            .values()
            .filter(|node| is_inside(node))
            .map(|node| node.id.clone())
            .collect();
        for node in nodes {
            self.remove(&node);
        }
        let branches: Vec<String> =
            self.branches(id).into_iter().map(|reference| reference.id).collect();
        // Runs of rooms are on no branch.
        let scope = project_scope(id);
        let is_of_project = |run: &Run| {
            run.scope == scope
                || run.reference.as_ref().is_some_and(|branch| branches.contains(branch))
        };
        let runs: Vec<String> =
            self.runs.values().filter(|run| is_of_project(run)).map(|run| run.id.clone()).collect();
        for run in runs {
            self.remove_run(&run);
        }
        for branch in branches {
            self.references.remove(&branch);
        }
        self.rooms.remove_of_project(id);
        self.projects.remove(id).is_some()
    }

    fn branches(&self, project: &str) -> Vec<Reference> {
        let is_inside = |reference: &&Reference| {
            reference.branch.as_ref().is_some_and(|branch| branch.project == project)
        };
        let mut branches: Vec<Reference> =
            self.references.values().filter(is_inside).cloned().collect();
        branches.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        branches
    }

    fn project_nodes(&self, project: &str) -> impl Iterator<Item = &Node> {
        self.nodes
            .values()
            .filter(move |node| node.in_project.as_ref().is_some_and(|of| of.project == project))
    }

    fn size(&self, id: &str, node: &Node) -> u64 {
        let log = self.logs.get(id).into_iter().flatten();
        let logged: usize = log.map(|piece| piece.sealed.len()).sum();
        (node.sealed.len() + logged) as u64
    }

    fn trim(&mut self, now: u64, bytes: u64) -> u64 {
        let outside = || self.nodes.iter().filter(|(_, node)| node.in_project.is_none());
        let mut closed: Vec<(u64, String, bool, u64)> = outside()
            .filter(|(_, node)| !node.open)
            .map(|(id, node)| {
                let expired = node.expires.is_some_and(|at| at <= now);
                (node.created, id.clone(), expired, self.size(id, node))
            })
            .collect();
        closed.sort();
        let mut total: u64 = outside().map(|(id, node)| self.size(id, node)).sum();
        let before = self.references.len();
        let lives = |expires: Option<u64>| expires.is_none_or(|at| at > now);
        self.references.retain(|_, reference| lives(reference.expires));
        let mut gone = (before - self.references.len()) as u64;
        for expired_only in [true, false] {
            closed.retain(|(_, id, expired, size)| {
                let goes = if expired_only { *expired } else { total > bytes };
                if goes {
                    self.remove(id);
                    total -= size;
                    gone += 1;
                }
                !goes
            });
        }
        let ended = |run: &&Run| run.status != RunStatus::Running && !lives(run.expires);
        let expired: Vec<String> =
            self.runs.values().filter(ended).map(|run| run.id.clone()).collect();
        for run in expired {
            gone += u64::from(self.remove_run(&run));
        }
        gone
    }
}

/// The later of two expiry times. `None` never expires.
fn later(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.max(other?))
}

pub(crate) fn ready<T: Send + 'static>(value: T) -> StoreFuture<'static, T> {
    Box::pin(std::future::ready(Ok(value)))
}

/// The entries of a sorted list that a page has.
pub(crate) fn page<'a, T: Clone + 'a>(
    entries: impl Iterator<Item = (&'a str, &'a T)>,
    page: &Page,
    newest_first: bool,
) -> Vec<T> {
    let is_later = |id: &str| match &page.after {
        None => true,
        Some(after) if newest_first => id < after.as_str(),
        Some(after) => id > after.as_str(),
    };
    entries
        .filter(|(id, _)| is_later(id))
        .take(page.limit)
        .map(|(_, entry)| entry.clone())
        .collect()
}

#[cfg(test)]
impl InMemory {
    /// Lets some reads of logs fail, as those of a database that is lost for a while.
    pub(crate) fn fail_next_reads_of_logs(&self, count: usize) {
        self.failing_reads.store(count, std::sync::atomic::Ordering::SeqCst);
    }

    fn read_fails(&self) -> bool {
        use std::sync::atomic::Ordering::SeqCst;
        self.failing_reads.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

impl NodeStore for InMemory {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let mut contents = self.contents.lock();
        let before = contents.clone();
        let outcome = contents.commit(commit);
        if outcome != Outcome::Written {
            *contents = before;
        }
        ready(outcome)
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        ready(self.contents.lock().nodes.get(id).cloned())
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        let contents = self.contents.lock();
        let named = contents.nodes.values().filter(|node| node.names.iter().any(|own| own == name));
        let newest = named.max_by_key(|node| (node.owner == owner, node.created));
        ready(newest.cloned())
    }

    fn path(&self, id: &str, most: usize, detail: Detail) -> StoreFuture<'_, Vec<Node>> {
        ready(self.contents.lock().path(id, most, detail))
    }

    fn path_ids(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<String>> {
        let path = self.contents.lock().path(id, most, Detail::Content);
        ready(path.into_iter().map(|node| node.id).collect())
    }

    fn path_page(
        &self,
        id: &str,
        page: Page,
        detail: Detail,
    ) -> StoreFuture<'_, Option<Vec<Node>>> {
        let path = self.contents.lock().path(id, usize::MAX, detail);
        let first = match page.after {
            None => Some(0),
            Some(after) => path.iter().position(|node| node.id == after).map(|at| at + 1),
        };
        let rest = first.map(|first| path.into_iter().skip(first));
        ready(rest.map(|rest| rest.take(page.limit).collect()))
    }

    fn raw(&self, id: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        ready(self.contents.lock().raw.get(id).cloned())
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().remove(id))
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        let references = &mut self.contents.lock().references;
        match references.get_mut(&reference.id) {
            Some(known) => known.sealed = reference.sealed,
            None => {
                references.insert(reference.id.clone(), reference);
            }
        }
        ready(())
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        ready(self.contents.lock().references.get(id).cloned())
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().references.remove(id).is_some())
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        let sessions = self.users.lock().remove_expired(now);
        ready(sessions + self.contents.lock().trim(now, bytes))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        ready(())
    }
}

/// Compare-and-set: replaces the value if it is still the one that the caller knew.
pub(crate) fn replace<T>(known: Option<&mut T>, to: T) -> Changed {
    match known {
        Some(known) => {
            *known = to;
            Changed::Yes
        }
        None => Changed::Stale,
    }
}

impl ProjectStore for InMemory {
    fn put_project(&self, project: Project) -> StoreFuture<'_, ()> {
        self.contents.lock().projects.insert(project.id.clone(), project);
        ready(())
    }

    fn project(&self, id: &str) -> StoreFuture<'_, Option<Project>> {
        ready(self.contents.lock().projects.get(id).cloned())
    }

    fn projects(&self, owner: &str, deleted: bool, wanted: Page) -> StoreFuture<'_, Vec<Project>> {
        let contents = self.contents.lock();
        let users = self.users.lock();
        let is_shared = |project: &Project| !deleted && users.is_member(&project.id, owner);
        let own = contents.projects.iter().rev().filter(|(_, project)| {
            (project.owner == owner || is_shared(project))
                && project.facts.deleted.is_some() == deleted
        });
        ready(page(own.map(|(id, project)| (id.as_str(), project)), &wanted, true))
    }

    fn remove_project(&self, id: &str) -> StoreFuture<'_, bool> {
        let mut contents = self.contents.lock();
        self.users.lock().remove_members(id);
        ready(contents.remove_project(id))
    }

    fn branches(&self, project: &str) -> StoreFuture<'_, Vec<Reference>> {
        ready(self.contents.lock().branches(project))
    }

    fn key_checks(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, Option<String>)>> {
        let contents = self.contents.lock();
        let known = ids.iter().filter_map(|id| contents.projects.get(id));
        let checks = known.map(|project| (project.id.clone(), project.facts.key_check.clone()));
        let checks = checks.collect();
        Box::pin(std::future::ready(Ok(checks)))
    }

    fn change_project(&self, from: Project, to: Project) -> StoreFuture<'_, Changed> {
        let mut contents = self.contents.lock();
        let known = contents.projects.get_mut(&from.id).filter(|known| **known == from);
        ready(replace(known, to))
    }

    fn change_branch(&self, id: &str, from: Branch, to: Branch) -> StoreFuture<'_, Changed> {
        let mut contents = self.contents.lock();
        let is_taken = contents.is_taken(id, &to);
        let known = contents.references.get_mut(id).and_then(|known| known.branch.as_mut());
        ready(match known.filter(|known| **known == from) {
            Some(_) if is_taken => Changed::NameTaken,
            known => replace(known, to),
        })
    }

    fn change_node(&self, id: &str, from: NodeFacts, to: NodeFacts) -> StoreFuture<'_, Changed> {
        let mut contents = self.contents.lock();
        let known = contents.nodes.get_mut(id).and_then(|node| node.in_project.as_mut());
        let known = known.map(|known| &mut known.facts).filter(|known| **known == from);
        ready(replace(known, to))
    }

    fn node_facts(&self, ids: &[String]) -> StoreFuture<'_, Vec<(String, NodeFacts)>> {
        let contents = self.contents.lock();
        let facts = |id: &String| {
            let inside = contents.nodes.get(id)?.in_project.as_ref()?;
            Some((id.clone(), inside.facts.clone()))
        };
        ready(ids.iter().filter_map(facts).collect())
    }

    fn project_nodes(&self, project: &str, wanted: Page) -> StoreFuture<'_, Vec<Node>> {
        let contents = self.contents.lock();
        let nodes = contents.project_nodes(project).map(|node| (node.id.as_str(), node));
        ready(page(nodes, &wanted, false))
    }

    fn count_nodes(&self, project: &str) -> StoreFuture<'_, u64> {
        ready(self.contents.lock().project_nodes(project).count() as u64)
    }
}

impl RunStore for InMemory {
    fn run(&self, id: &str) -> StoreFuture<'_, Option<Run>> {
        ready(self.contents.lock().runs.get(id).cloned())
    }

    fn named_run(&self, owner: &str, scope: &str, name: &str) -> StoreFuture<'_, Option<Run>> {
        ready(self.contents.lock().named_run(owner, scope, name).cloned())
    }

    fn runs(&self, owner: &str, scope: &str, limit: usize) -> StoreFuture<'_, Vec<Run>> {
        let contents = self.contents.lock();
        let own = contents.runs.values().filter(|run| run.owner == owner && run.scope == scope);
        let mut runs: Vec<Run> = own.cloned().collect();
        runs.sort_by(|one, other| (other.created, &other.id).cmp(&(one.created, &one.id)));
        runs.truncate(limit);
        ready(runs)
    }

    fn active_runs(&self, references: &[String]) -> StoreFuture<'_, Vec<Run>> {
        let contents = self.contents.lock();
        let active = references.iter().filter_map(|reference| contents.active_run(reference));
        ready(active.cloned().collect())
    }

    fn beat(&self, instance: &str) -> StoreFuture<'_, ()> {
        self.contents.lock().beats.insert(instance.to_owned(), unix_ms());
        ready(())
    }

    fn abandoned(&self, instance: &str, silent: Duration) -> StoreFuture<'_, Vec<Run>> {
        let contents = self.contents.lock();
        let silent = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let since = unix_ms().saturating_sub(silent);
        let is_abandoned = |run: &&Run| {
            let beat = contents.beats.get(&run.instance);
            run.status == RunStatus::Running
                && run.instance != instance
                && beat.is_none_or(|beat| *beat <= since)
        };
        ready(contents.runs.values().filter(is_abandoned).cloned().collect())
    }

    fn take_over(&self, id: &str, epoch: u64, instance: &str) -> StoreFuture<'_, Option<u64>> {
        let mut contents = self.contents.lock();
        let taken = contents.writable(id, epoch).map(|run| {
            run.epoch += 1;
            instance.clone_into(&mut run.instance);
            run.epoch
        });
        ready(taken)
    }

    fn log(&self, pieces: Vec<LogPiece>) -> StoreFuture<'_, Vec<bool>> {
        let mut contents = self.contents.lock();
        let mut written = Vec::with_capacity(pieces.len());
        for LogPiece { run, epoch, piece } in pieces {
            let is_written = contents.writable(&run, epoch).is_some();
            if is_written {
                contents.logs.entry(run).or_default().push(piece);
            }
            written.push(is_written);
        }
        ready(written)
    }

    fn logged(&self, run: &str, after: Option<u64>, limit: usize) -> StoreFuture<'_, Vec<Piece>> {
        #[cfg(test)]
        if self.read_fails() {
            let (what, cause) = ("cannot read a log".to_owned(), "the database is lost".into());
            return Box::pin(std::future::ready(Err(StoreError { what, cause })));
        }
        let contents = self.contents.lock();
        let log = contents.logs.get(run).into_iter().flatten();
        let later = log.filter(|piece| after.is_none_or(|after| piece.last > after));
        ready(later.take(limit).cloned().collect())
    }

    fn log_outline(&self, run: &str, before: u64) -> StoreFuture<'_, Vec<Piece>> {
        let contents = self.contents.lock();
        let log = contents.logs.get(run).into_iter().flatten();
        let needed = log.filter(|piece| piece.first < before && !piece.continues);
        ready(needed.cloned().collect())
    }

    fn last_logged(&self, run: &str) -> StoreFuture<'_, Option<u64>> {
        let contents = self.contents.lock();
        ready(contents.logs.get(run).and_then(|log| log.last()).map(|piece| piece.last))
    }

    fn costs(&self, project: &str, room: Option<&str>) -> StoreFuture<'_, Vec<CostSum>> {
        let contents = self.contents.lock();
        let is_asked = |of: &&RunCost| {
            of.project == project && room.is_none_or(|room| of.room.as_deref() == Some(room))
        };
        let mut sums: BTreeMap<Option<String>, CostSum> = BTreeMap::new();
        for of in contents.costs.values().filter(is_asked) {
            let channel = of.channel.clone();
            let sum = sums.entry(channel.clone());
            sum.or_insert(CostSum { channel, ..CostSum::default() }).add(of.cost);
        }
        ready(sums.into_values().collect())
    }

    fn ask_stop(&self, id: &str) -> StoreFuture<'_, bool> {
        let mut contents = self.contents.lock();
        let is_running = contents.runs.get(id).is_some_and(|run| run.status == RunStatus::Running);
        if is_running {
            contents.stops.insert(id.to_owned());
        }
        ready(is_running)
    }

    fn asked_stops(&self, instance: &str) -> StoreFuture<'_, Vec<String>> {
        let contents = self.contents.lock();
        let is_own = |id: &&String| {
            let run = contents.runs.get(*id);
            run.is_some_and(|run| run.status == RunStatus::Running && run.instance == instance)
        };
        ready(contents.stops.iter().filter(is_own).cloned().collect())
    }

    fn record_reader(&self, id: &str) -> StoreFuture<'_, ()> {
        let mut contents = self.contents.lock();
        if contents.runs.get(id).is_some_and(|run| run.status == RunStatus::Running) {
            contents.reads.insert(id.to_owned(), unix_ms());
        }
        ready(())
    }

    fn last_read(&self, id: &str) -> StoreFuture<'_, Option<Duration>> {
        let read = self.contents.lock().reads.get(id).copied();
        ready(read.map(|read| Duration::from_millis(unix_ms().saturating_sub(read))))
    }

    fn remove_run(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().remove_run(id))
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn in_memory_store_passes_the_suite() {
        crate::suite::check_store(&super::InMemory::default()).await;
    }
}
