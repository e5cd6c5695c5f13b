//! A TCP proxy that spoils the way to a server.

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

/// What becomes of what passes, on connections that there are and on those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of it passes.
    IsOpen,
    /// Answers are late by so much.
    IsSlow(Duration),
    /// What is asked passes; its answer is lost, and the connection with it.
    LosesAnswers,
    /// As [`Way::LosesAnswers`], but only of scripts: whoever connects is welcome.
    LosesAnswersOfScripts,
    /// Of each connection, one answer more passes; then as [`Way::LosesAnswers`].
    LosesSecondAnswers,
    /// What is asked passes; answers wait until the way is another one.
    HoldsAnswersBack,
    /// Connections are accepted, and that is all: nothing passes until the way is another one.
    IsSilent,
    /// Connections are accepted and closed.
    IsClosed,
}

/// A port that leads to a server. It is closed, and its connections are cut, with this value.
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
    /// How often connections were cut: those that were accepted before the last time have ended.
    cuts: u32,
    /// How often connections were stranded: those that were accepted before the last time pass nothing any more.
    strandings: u32,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU32,
    lost: AtomicU32,
}

impl Proxy {
    /// A proxy before that server, open.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on things pass so.
    pub fn set(&self, way: Way) {
        self.state.send_modify(|state| state.way = way);
    }

    /// From now on new connections lead to that server; those that there are stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Loses without a word whatever the connections that there are would have to pass from now on, as a firewall does that has
    /// forgotten them; new ones are open.
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
                // Or the proxy is gone.
                _ = cut.wait_for(|state| state.cuts > cuts) => return,
                _ = stranded.wait_for(|state| state.strandings > strandings) => {}
            }
            // It stays open, and nobody looks at it.
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

/// What passes: what is asked, and whether that was a script; or the answers, of which those are counted that are lost.
#[derive(Clone, Copy)]
enum Side<'a> {
    Asks(&'a AtomicBool),
    Answers(&'a AtomicBool, &'a AtomicU32),
}

/// Passes on what comes.
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
