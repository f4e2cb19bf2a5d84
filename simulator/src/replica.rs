//! What a leader does: caches fed by its watches, the queue, passes, the sweep, the event dedup. All of it is
//! `noderotation_rotation`'s; this sends the requests and hands over the answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::Pass;
use noderotation_rotation::caches::{CacheOf, Caches, Triggers};
use noderotation_rotation::event_dedup::{EventDedup, notices};
use noderotation_rotation::lease::HeldLease;
use noderotation_rotation::orphans::{Inventory, Orphan, orphans};
use noderotation_rotation::pass::{Answer, ApiObject, Next, PassEnd, PassResult, Written};
use noderotation_rotation::step::{LiveRead, Write};
use noderotation_rotation::work_queue::{End, WorkQueue};
use noderotation_rotation::world::Settings;
use noderotation_shared::instant::plus;
use noderotation_shared::objects::NodeClaim;

use crate::chance::Source;
use crate::event::Event;
use crate::faults::Fault;
use crate::invariants;
use crate::process::{Life, die};
use crate::run::Sim;
use crate::server::{Asked, Request, Response};
use crate::watch::{Watch, Watched};

/// The safety net between two passes.
const SAFETY_NET: SignedDuration = SignedDuration::from_secs(300);

/// Passes that run at once.
const WORKERS: usize = 4;

/// The client gives a request up after this time.
const TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// What a process keeps while it leads.
pub struct Leader {
    /// Its caches.
    pub caches: Caches,
    /// The lease as it holds it.
    pub held: HeldLease,
    /// One watch for each kind.
    pub watches: [Watch; Watched::ALL.len()],
    queue: WorkQueue,
    /// Since when each triggered pool has been waiting to be looked at.
    waiting: BTreeMap<Box<str>, Timestamp>,
    dedup: EventDedup,
    jobs: Vec<Job>,
    next_job: u64,
    has_begun: bool,
    /// When it was woken for the queue last.
    wakes: Option<Timestamp>,
}

/// Something that sends one request after another.
struct Job {
    number: u64,
    /// The name that it works on; `None`: the sweep at the start.
    key: Option<Arc<str>>,
    work: Work,
}

enum Work {
    Pass(Box<Pass>),
    /// What is left to clean up, and how the pass before it ended.
    CleanUp(VecDeque<Orphan>, Option<End>),
}

impl Leader {
    /// A leader that has seen nothing yet.
    pub fn new(held: HeldLease) -> Self {
        Self {
            caches: Caches::default(),
            held,
            watches: Default::default(),
            queue: WorkQueue::default(),
            waiting: BTreeMap::new(),
            dedup: EventDedup::default(),
            jobs: Vec::new(),
            next_job: 0,
            has_begun: false,
            wakes: None,
        }
    }

    fn job(&mut self, number: u64) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.number == number)
    }

    fn add_job(&mut self, key: Option<Arc<str>>, work: Work) -> u64 {
        self.next_job += 1;
        self.jobs.push(Job { number: self.next_job, key, work });
        self.next_job
    }

    fn is_stale(&self, now: Timestamp) -> bool {
        self.watches.iter().any(|watch| watch.is_stale(now))
    }
}

/// A process leads: it opens its watches.
pub fn begin(sim: &mut Sim, index: usize) {
    let Some(life) = sim.processes.get(index).map(|process| process.life) else { return };
    for watched in Watched::ALL {
        sim.after(sim.now, Event::Open(life, watched));
    }
}

/// A watch is open. Once all initial states are complete the sweep runs, and then every pool; a view that is fresh again
/// has every pool looked at.
pub fn watches_are_open(sim: &mut Sim, life: Life, recovered: bool) {
    let now = sim.wall(life.process);
    let Some(leader) = sim.leader(life) else { return };
    if leader.has_begun {
        if recovered {
            let names = leader.caches.pool_names();
            triggered(sim, life, &names);
        }
        return;
    }
    if leader.caches.is_initialized() {
        leader.has_begun = true;
        let found = orphans(&Inventory::of_all(&leader.caches), now);
        let job = leader.add_job(None, Work::CleanUp(found.into(), None));
        next_orphan(sim, life, job);
    }
}

/// The network of a process is gone: its watches fall silent until their connections are given up, or it is back.
pub fn cut_off(sim: &mut Sim, index: usize, until: Timestamp) {
    let now = sim.now;
    let Some(process) = sim.processes.get_mut(index) else { return };
    let life = process.life;
    let Some(leader) = process.leader() else { return };
    leader.watches.iter_mut().for_each(|watch| watch.falls_silent(now));
    let silence = SignedDuration::try_from(noderotation_shared::watch_cursor::SILENCE).unwrap_or_default();
    for watched in Watched::ALL {
        sim.after(until.min(plus(now, silence)), Event::Closed(life, watched));
    }
}

/// Changes want these pools to be looked at.
pub fn triggered(sim: &mut Sim, life: Life, pools: &Triggers) {
    let (elapsed, now) = (sim.elapsed(), sim.now);
    if let Some(leader) = sim.leader(life) {
        for pool in pools {
            leader.queue.trigger(pool, elapsed);
            leader.waiting.entry(pool.clone()).or_insert(now);
        }
        wake(sim, life);
    }
}

/// Begins every pass that is due while a worker is free, and asks to be woken for the next.
pub fn wake(sim: &mut Sim, life: Life) {
    loop {
        let (elapsed, now, wall, began) = (sim.elapsed(), sim.now, sim.wall(life.process), sim.began);
        let settings = sim.settings.clone();
        let Some(leader) = sim.leader(life).filter(|leader| leader.has_begun) else { return };
        if leader.jobs.len() >= WORKERS || leader.jobs.iter().any(|job| job.key.is_none()) {
            return;
        }
        match leader.queue.take(elapsed) {
            Ok(work) => begin_pass(sim, life, work.key, &settings, wall),
            Err(Some(at)) => {
                let at = plus(began, SignedDuration::try_from(at).unwrap_or(SignedDuration::MAX));
                if leader.wakes.is_none_or(|wakes| at < wakes || wakes <= now) {
                    leader.wakes = Some(at);
                    sim.after(at, Event::Wake(life));
                }
                return;
            }
            Err(None) => return,
        }
    }
}

fn begin_pass(sim: &mut Sim, life: Life, key: Arc<str>, settings: &Arc<Settings>, wall: Timestamp) {
    let now = sim.now;
    let since = sim.leader(life).and_then(|leader| leader.waiting.remove(&*key));
    invariants::looked_at(sim, &key, since.unwrap_or(now));
    let Some(leader) = sim.leader(life) else { return };
    let is_stale = leader.is_stale(now);
    match leader.caches.world(settings, &key, is_stale, wall) {
        Some(world) => {
            let job = leader.add_job(Some(key), Work::Pass(Box::new(Pass::new(world))));
            sim.passes += 1;
            sim.after(now, Event::Step(life, job));
        }
        None => {
            let found = orphans(&Inventory::of_pool(&leader.caches, &key, None), wall);
            leader.dedup.forget(&key);
            let job = leader.add_job(Some(key), Work::CleanUp(found.into(), None));
            next_orphan(sim, life, job);
        }
    }
}

/// The next request of a pass.
pub fn step(sim: &mut Sim, life: Life, number: u64) {
    let wall = sim.wall(life.process);
    let Some(job) = sim.leader(life).and_then(|leader| leader.job(number)) else { return };
    let Work::Pass(pass) = &mut job.work else { return };
    match pass.next(wall) {
        Next::Done(end) => pass_ended(sim, life, number, *end),
        Next::Read(read) => send(sim, life, number, Asked::Read(read)),
        Next::Write(act) => send(sim, life, number, Asked::Write(act)),
    }
}

/// Sends one request; what becomes of it is drawn.
fn send(sim: &mut Sim, life: Life, job: u64, asked: Asked) {
    let index = life.process;
    invariants::sends(sim, index);
    let elapsed = sim.elapsed();
    let has_term = sim.leader(life).is_some_and(|leader| elapsed < leader.held.until());
    if matches!(asked, Asked::Write(_)) && !has_term {
        let answer = Response::failure(asked, Written::Failed);
        return sim.after(sim.now, Event::Answered(life, job, Box::new(answer)));
    }
    let rarity = sim.rarity();
    let (fault, mut rng) = match sim.chance.take(Source::Request, rarity) {
        Some(mut rng) => (Fault::draw(&mut rng), rng),
        None => (Fault::None, Rng::with_seed(0)),
    };
    let fault = if sim.reaches(index) { fault } else { Fault::Lost };
    let (now, wall) = (sim.now, sim.wall(index));
    let soon = plus(now, SignedDuration::from_millis(sim.rng(job).i64(2..60)));
    let request = Request { life, job, asked, fault, sent: now, wall };
    match fault {
        Fault::CrashBefore => return die(sim, index, "dies before a request"),
        Fault::Lost | Fault::Throttled => {
            let word = if fault == Fault::Lost { Written::Unknown } else { Written::Failed };
            let answer = Response::failure(request.asked, word);
            return sim.after(soon, Event::Answered(life, job, Box::new(answer)));
        }
        Fault::Late => {
            let late = plus(now, SignedDuration::from_secs(rng.i64(31..240)));
            let answer = Response::failure(request.asked.clone(), Written::Unknown);
            sim.after(plus(now, TIMEOUT), Event::Answered(life, job, Box::new(answer)));
            return sim.after(late, Event::Arrives(Box::new(request)));
        }
        Fault::Paused => {
            let until = plus(now, SignedDuration::from_secs(rng.i64(5..600)));
            if let Some(process) = sim.processes.get_mut(index) {
                process.paused_until = until;
            }
        }
        Fault::None | Fault::CrashAfter | Fault::LostAnswer | Fault::Overtaken => {}
    }
    sim.after(soon, Event::Arrives(Box::new(request)));
}

/// The answer to a job's request.
pub fn answered(sim: &mut Sim, life: Life, number: u64, response: Response) {
    let Some(leader) = sim.leader(life) else { return };
    let triggers = take_in(&mut leader.caches, &response);
    let Some(job) = leader.job(number) else { return };
    match &mut job.work {
        Work::Pass(pass) => {
            let announced = match response {
                Response::Answer(read, answer) => {
                    pass.answered(&read, answer);
                    Vec::new()
                }
                Response::ReadFailed => {
                    pass.failed();
                    Vec::new()
                }
                Response::Written(_, written) => pass.written(written),
            };
            for announcement in &announced {
                invariants::announced(sim, announcement);
            }
            triggered(sim, life, &triggers);
            step(sim, life, number);
        }
        Work::CleanUp(left, _) => {
            let Some(orphan) = left.front().cloned() else { return };
            triggered(sim, life, &triggers);
            orphan_answered(sim, life, number, &orphan, &response);
        }
    }
}

/// What an answer shows goes into the caches, too.
fn take_in(caches: &mut Caches, response: &Response) -> Triggers {
    match response {
        Response::Answer(_, Answer::NodePool(Some(object))) => caches.apply(object.clone()),
        Response::Answer(_, Answer::NodeClaim(Some(object))) => caches.apply(object.clone()),
        Response::Answer(LiveRead::NodeClaim(name), Answer::NodeClaim(None)) => {
            CacheOf::<NodeClaim>::forget(caches, name)
        }
        Response::Answer(_, Answer::Node(Some(object))) => caches.apply(object.clone()),
        Response::Answer(_, Answer::Placeholder(Some(object))) => caches.apply(object.clone()),
        Response::Written(Write::DeletePlaceholder { name, uid }, Written::Applied(_)) => {
            caches.placeholder_deleted(name, uid);
            Triggers::new()
        }
        Response::Written(_, Written::Applied(Some(object))) => match &**object {
            ApiObject::NodePool(object) => caches.apply(object.clone()),
            ApiObject::NodeClaim(object) => caches.apply(object.clone()),
            ApiObject::Node(object) => caches.apply(object.clone()),
            ApiObject::Placeholder(object) => caches.apply(object.clone()),
        },
        _ => Triggers::new(),
    }
}

fn pass_ended(sim: &mut Sim, life: Life, number: u64, end: PassEnd) {
    let (elapsed, wall, now) = (sim.elapsed(), sim.wall(life.process), sim.now);
    let PassEnd { result, report, wake_at } = end;
    invariants::pass_ended(sim, wall, result, wake_at);
    let Some(leader) = sim.leader(life) else { return };
    let Some(key) = leader.job(number).and_then(|job| job.key.clone()) else { return };
    let (found, end) = match result {
        PassResult::Success => {
            let told = leader.dedup.transition(&key, notices(&report, "", |_| String::new())).len();
            let anchor = leader.caches.pool(&key).and_then(|pool| pool.anchor().map(str::to_owned));
            let is_stale = leader.is_stale(now);
            let found =
                if is_stale { Vec::new() } else { orphans(&Inventory::of_pool(&leader.caches, &key, anchor), wall) };
            sim.notices += told;
            let next = wake_at.unwrap_or(Timestamp::MAX).min(plus(wall, SAFETY_NET));
            let wait = Duration::try_from(next.duration_since(wall)).unwrap_or_default();
            (found, End::Success(elapsed.saturating_add(wait)))
        }
        PassResult::Conflict => (Vec::new(), End::Again),
        PassResult::Failed => (Vec::new(), End::Failed(None)),
    };
    if let Some(job) = sim.leader(life).and_then(|leader| leader.job(number)) {
        job.work = Work::CleanUp(found.into(), Some(end));
    }
    next_orphan(sim, life, number);
}

/// Cleans up the next orphan, after a live look at its pool's anchor; or ends the job.
fn next_orphan(sim: &mut Sim, life: Life, number: u64) {
    let Some(Work::CleanUp(left, _)) = sim.leader(life).and_then(|l| l.job(number)).map(|job| &job.work) else {
        return;
    };
    match left.front().cloned() {
        None => job_ended(sim, life, number),
        Some(orphan) if orphan.pool.is_empty() => send(sim, life, number, Asked::Write(Box::new(orphan.act))),
        Some(orphan) => send(sim, life, number, Asked::Read(LiveRead::NodePool(orphan.pool))),
    }
}

fn orphan_answered(sim: &mut Sim, life: Life, number: u64, orphan: &Orphan, response: &Response) {
    match response {
        Response::Answer(_, Answer::NodePool(pool)) => {
            let is_anchored = pool.as_ref().is_some_and(|pool| pool.anchor() == Some(&*orphan.claim));
            if !is_anchored {
                return send(sim, life, number, Asked::Write(Box::new(orphan.act.clone())));
            }
        }
        Response::Written(_, Written::Applied(_)) => {
            orphan.act.announce.iter().for_each(|announcement| invariants::announced(sim, announcement));
        }
        _ => {}
    }
    if let Some(Work::CleanUp(left, _)) = sim.leader(life).and_then(|l| l.job(number)).map(|job| &mut job.work) {
        left.pop_front();
    }
    next_orphan(sim, life, number);
}

fn job_ended(sim: &mut Sim, life: Life, number: u64) {
    let (elapsed, spread) = (sim.elapsed(), sim.rng(number).f64());
    let Some(leader) = sim.leader(life) else { return };
    let Some(place) = leader.jobs.iter().position(|job| job.number == number) else { return };
    let job = leader.jobs.swap_remove(place);
    match (job.key, job.work) {
        (Some(key), Work::CleanUp(_, Some(end))) => leader.queue.done(&key, end, elapsed, spread),
        (Some(key), _) => leader.queue.forget(&key, elapsed),
        (None, _) => {
            let names = leader.caches.pool_names();
            for pool in &names {
                leader.queue.trigger(pool, elapsed);
            }
        }
    }
    wake(sim, life);
}
