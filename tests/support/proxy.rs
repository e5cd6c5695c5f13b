//! A TCP proxy that disturbs the path to a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What happens to data on existing and new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All data passes.
    IsOpen,
    /// Answers are delayed.
    IsSlow(Duration),
    /// Requests pass. The answer is lost, and the connection is closed.
    LosesAnswers,
    /// Like [`Way::LosesAnswers`], but only for scripts, so that clients can connect.
    LosesAnswersOfScripts,
    /// One more answer passes on each connection; then as [`Way::LosesAnswers`].
    LosesSecondAnswers,
    /// Requests pass. Answers wait until the way changes.
    HoldsAnswersBack,
    /// Connections are accepted. Nothing passes until the way changes.
    IsSilent,
    /// Connections are accepted and closed.
    IsClosed,
}

/// A port that leads to a server. Dropping it closes the port and cuts the connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Sender<State>,
    counts: Arc<Counts>,
    listener: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    way: Way,
    server: SocketAddr,
    /// How often connections were cut. Those accepted before the last time have ended.
    cuts: u32,
    /// How often connections were stranded. Those accepted before the last time pass nothing.
    strandings: u32,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU32,
    lost: AtomicU32,
}

impl Proxy {
    /// Opens a proxy in front of that server.
    ///
    /// # Panics
    /// If there is no port left.
    pub async fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (state, watched) = watch::channel(State { way: Way::IsOpen, server, cuts: 0, strandings: 0 });
        let counts = Arc::<Counts>::default();
        let listener = tokio::spawn(accept(listener, watched, Arc::clone(&counts)));
        Proxy { address, state, counts, listener }
    }

    /// The address of its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to data.
    pub fn set(&self, way: Way) {
        self.state.send_modify(|state| state.way = way);
    }

    /// Leads new connections to that server. Existing ones stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }

    /// Cuts all existing connections.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Silently drops all further data on existing connections, like a firewall that has forgotten
    /// them. New connections work.
    pub fn strand(&self) {
        self.state.send_modify(|state| state.strandings += 1);
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> u32 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// How many answers were lost.
    pub fn lost(&self) -> u32 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn accept(listener: TcpListener, state: Receiver<State>, counts: Arc<Counts>) {
    while let Ok((client, _)) = listener.accept().await {
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let (state, counts) = (state.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            let State { cuts, strandings, .. } = *state.borrow();
            let (mut cut, mut stranded) = (state.clone(), state.clone());
            let mut connected = pin!(connect(client, state, counts));
            tokio::select! {
                // An error on one side ends the other.
                _ = &mut connected => return,
                // The proxy was dropped.
                _ = cut.wait_for(|state| state.cuts > cuts) => return,
                _ = stranded.wait_for(|state| state.strandings > strandings) => {}
            }
            // The connection stays open, and is not read.
            let _ = cut.wait_for(|state| state.cuts > cuts).await;
        });
    }
}

async fn connect(client: TcpStream, mut state: Receiver<State>, counts: Arc<Counts>) -> io::Result<()> {
    let way = let_pass(&mut state, |way| way != Way::IsSilent).await?;
    if way == Way::IsClosed {
        return Ok(());
    }
    let address = state.borrow().server;
    let server = TcpStream::connect(address).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_script = AtomicBool::new(false);
    let asked = copy(from_client, to_server, state.clone(), Side::Asks(&is_script));
    let answered = copy(from_server, to_client, state, Side::Answers(&is_script, &counts.lost));
    tokio::select! {
        ended = asked => ended,
        ended = answered => ended,
    }
}

/// The direction of the data: requests, and whether the last was a script; or answers, with a count
/// of those lost.
#[derive(Clone, Copy)]
enum Side<'a> {
    Asks(&'a AtomicBool),
    Answers(&'a AtomicBool, &'a AtomicU32),
}

/// Copies from one side to the other.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: Receiver<State>,
    side: Side<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut has_passed_one = false;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let answers = matches!(side, Side::Answers(..));
        let holds_back = |way| way == Way::IsSilent || (answers && way == Way::HoldsAnswersBack);
        match (let_pass(&mut state, |way| !holds_back(way)).await?, side) {
            (Way::LosesSecondAnswers, Side::Answers(..)) if !has_passed_one => has_passed_one = true,
            (Way::LosesAnswersOfScripts, Side::Answers(is_script, _))
                if !is_script.load(Ordering::Relaxed) => {}
            (
                Way::LosesAnswers | Way::LosesAnswersOfScripts | Way::LosesSecondAnswers,
                Side::Answers(_, lost),
            ) => {
                lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            (Way::IsClosed, _) => return Ok(()),
            (Way::IsSlow(delay), Side::Answers(..)) => sleep(delay).await,
            (_, Side::Asks(is_script)) => {
                let asked = &buffer[..read];
                is_script.store(asked.windows(4).any(|word| word == b"EVAL"), Ordering::Relaxed);
            }
            _ => {}
        }
        to.write_all(&buffer[..read]).await?;
    }
}

async fn let_pass(state: &mut Receiver<State>, passes: impl Fn(Way) -> bool) -> io::Result<Way> {
    let state = state.wait_for(|state| passes(state.way)).await;
    state.map(|state| state.way).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}
