//! Puts the program together: preflight, lease, watches, sweep, passes; and takes it apart again (§8, §13 *Our own
//! programs*).

use std::sync::Arc;
use std::time::Duration;

use noderotation_cluster::client::connect;
use noderotation_process::http::{Health, serve};
use noderotation_process::tasks::{Tasks, describe, or_stopped, wait_for_signal};
use noderotation_rotation::event_dedup::EventDedup;
use noderotation_rotation::world::Settings;
use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder, PolicyObject};
use noderotation_shared::zone::program_version;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::args::Args;
use crate::events::{self, Recorder};
use crate::leader::{Election, Term};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::reconcile::Reconciler;
use crate::watch::Caches;
use crate::{preflight, schema, status, sweep, trial_write};
use noderotation_cluster::api::Api;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_cluster::watch::{Freshness, ListWatch, reflect};

/// How long the request in flight may still take once the process is asked to stop.
const LAST_REQUEST: Duration = Duration::from_secs(10);

/// Runs until a signal, the loss of the lease, or the end of any task.
pub async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let metrics = Arc::new(Metrics::new());
    let page = metrics.clone();
    let health = Health::new(move || page.render());
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new();
    tasks.spawn(serve("--listen", args.listen, health.clone()));
    let signals = stop.clone();
    tasks.spawn(async move { wait_for_signal(signals).await });

    let agent = concat!("noderotation-controller/", env!("CARGO_PKG_VERSION"));
    let client = connect(args.kubeconfig.as_deref(), agent).await?;
    let api = Api::new(client, args.api_rate, args.api_burst, metrics.client_metrics.clone());
    let election = Arc::new(Election::new(&api, &args.namespace, &args.identity, args.timing()));
    info!(version = program_version(), identity = election.identity(), namespace = args.namespace, "starting");

    let preflight = preflight::check(&api);
    let Some(checked) = or_stopped(preflight, &stop, &mut tasks).await? else { return Ok(()) };
    checked?;
    health.set_ready(true);
    let Some(term) = or_stopped(election.win(), &stop, &mut tasks).await? else { return Ok(()) };

    metrics.set_leader(true);
    let lease_stop = CancellationToken::new();
    let (holder, held, lease_token) = (election.clone(), term.clone(), lease_stop.clone());
    tasks.spawn(async move { holder.hold(&held, &lease_token).await });
    let workers = CancellationToken::new();
    let mut lead = JoinSet::new();
    lead.spawn(lead_on(args, api, term, metrics, election.identity().into(), workers.clone()));

    let result = tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = tasks.join_next() => Err(describe(ended)),
        ended = lead.join_next() => Err(describe(ended)),
    };
    health.set_ready(false);
    if let Err(why) = result {
        // the lease is left as it is: nobody may believe that this process has stopped cleanly
        error!(why, "a task of the controller ended, so the process exits");
        anyhow::bail!(why);
    }
    info!("stopping: the request in flight ends, then the lease is released");
    workers.cancel();
    let drained = tokio::time::timeout(LAST_REQUEST, async { while lead.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        anyhow::bail!("the request in flight did not end within {LAST_REQUEST:?}; the lease is left to run out");
    }
    lease_stop.cancel();
    election.release().await;
    info!("stopped");
    Ok(())
}

/// All that only a leader does. Returns when `stop` is set and every pass has ended, or an error when a task ends.
async fn lead_on(
    args: Args,
    api: Api,
    term: Term,
    metrics: Arc<Metrics>,
    instance: Arc<str>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    if args.node_metrics {
        metrics.observe_nodes();
    }
    let queue = Arc::new(Queue::default());
    let fresh = Arc::new(Freshness::default());
    let caches = Arc::new(Caches::new(queue.clone(), fresh.clone()));
    metrics.observe_loops(queue.clone(), fresh);
    let mut loops: JoinSet<()> = JoinSet::new();
    watch_everything(&mut loops, &api, &caches, &metrics, &args.namespace);
    tokio::select! {
        () = caches.wait_initialized() => {}
        () = stop.cancelled() => return Ok(()),
        ended = loops.join_next() => anyhow::bail!("a watch ended: {ended:?}"),
    }
    let (nodepools, nodeclaims) = {
        let caches = caches.lock();
        (caches.pool_names().len(), caches.claims().len())
    };
    info!(nodepools, nodeclaims, "caches complete");

    let (recorder, events) = Recorder::new();
    loops.spawn(events::write(api.clone(), events, instance));
    let reconciler = Arc::new(Reconciler {
        api: api.clone(),
        caches: caches.clone(),
        queue,
        term: term.clone(),
        settings: Arc::new(Settings {
            namespace: args.namespace.clone(),
            priority_class: args.priority_class.clone(),
            image: args.placeholder_image.clone(),
            pull_secrets: args.placeholder_pull_secrets.clone(),
            labels: args.placeholder_labels.clone(),
            annotations: args.placeholder_annotations.clone(),
        }),
        metrics: metrics.clone(),
        recorder: recorder.clone(),
        event_dedup: Mutex::new(told_before(&caches)),
        stop: stop.clone(),
    });
    tokio::join!(schema::look(&api, &caches), trial_write::try_write(&api, &caches, &recorder));
    sweep::sweep(&reconciler).await;
    let mut workers: JoinSet<()> = JoinSet::new();
    for _ in 0..args.workers {
        workers.spawn(reconciler.clone().work());
    }
    loops.spawn(caches.clone().trigger_on_recovery());
    loops.spawn(schema::keep(api.clone(), caches.clone()));
    loops.spawn(status::keep(api, caches, metrics.reports.clone(), term));
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(())) if stop.is_cancelled() => {}
                Some(other) => anyhow::bail!("a worker ended: {other:?}"),
            },
            ended = loops.join_next() => anyhow::bail!("a loop ended: {ended:?}"),
        }
    }
}

/// What the policies' status says that an earlier leader has told.
fn told_before(caches: &Caches) -> EventDedup {
    let mut dedup = EventDedup::default();
    for (pool, topic) in status::rows::told(caches.lock().policies().iter().map(|policy| &policy.status)) {
        dedup.seed(pool, topic);
    }
    dedup
}

fn watch_everything(loops: &mut JoinSet<()>, api: &Api, caches: &Arc<Caches>, metrics: &Metrics, namespace: &str) {
    fn one<K: Cached>(loops: &mut JoinSet<()>, api: &Api, caches: &Arc<Caches>, metrics: &Metrics, what: ListWatch)
    where
        Caches: EventHandler<K>,
    {
        let (fresh, client_metrics) = (caches.fresh.clone(), metrics.client_metrics.clone());
        loops.spawn(reflect::<K>(api.clone(), what, caches.clone(), fresh, client_metrics));
    }
    one::<NodePool>(loops, api, caches, metrics, ListWatch::all());
    one::<NodeClaim>(loops, api, caches, metrics, ListWatch::all());
    one::<Node>(loops, api, caches, metrics, ListWatch::all());
    one::<PolicyObject>(loops, api, caches, metrics, ListWatch::all());
    one::<Placeholder>(loops, api, caches, metrics, ListWatch::labelled(namespace, keys::SURGE_FOR));
}
