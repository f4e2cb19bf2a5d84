//! The parts of a process, none of which may end unnoticed, and the signals that end them all.

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Loops that never should end; the reason when one does.
pub type Tasks = JoinSet<Result<(), String>>;

/// Awaits `future`, unless a signal (then `None`) or the end of a part comes first.
pub async fn or_stopped<T>(
    future: impl Future<Output = T>,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<Option<T>> {
    tokio::select! {
        value = future => Ok(Some(value)),
        () = stop.cancelled() => Ok(None),
        ended = tasks.join_next() => Err(anyhow::Error::msg(describe(ended))),
    }
}

/// Why a part ended, as a sentence.
pub fn describe(ended: Option<Result<Result<(), String>, JoinError>>) -> String {
    match ended {
        None => "nothing was running".into(),
        Some(Ok(Ok(()))) => "a loop ended that never should".into(),
        Some(Ok(Err(why))) => why,
        Some(Err(panic)) => format!("a loop panicked: {panic}"),
    }
}

/// The first signal asks to stop, a second one stops.
pub async fn wait_for_signal(stop: CancellationToken) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    stop.cancel();
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Err("a second signal: not waiting any longer".into())
}
