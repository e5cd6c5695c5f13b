//! A gateway whose limits stand in a table, of which tests start four.

mod plan;

use std::error::Error;
use std::fmt::Arguments;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tollgate::failure::{Answering, Fixed, Guarded};
use tollgate::jobs::{JobId, JobTake, Jobs};
use tollgate::{CircuitBreaker, Limit, Limiter, Question, Reason, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;

use plan::{CUSTOMERS, HOUR, Row, jobs, key, streams, units};

/// What works at the same time.
const WORKERS: u64 = 16;

/// How long a worker rests while the store fails.
const REST: Duration = Duration::from_millis(250);

/// How long a process that stops may send what is kept.
const CLOSE_WITHIN: Duration = Duration::from_secs(60);

type ProcessStore = Answering<Guarded<RedisStore>, Fixed>;

/// `URL TABLE JOURNAL NUMBER` works until its input ends, and then closes its limiter.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, table, journal, number] = words else { panic!("what is {words:?}?") };
    let number: u64 = number.parse()?;
    let redis = RedisStore::connect(url).await?;
    let store = redis.clone().timeout(Duration::from_millis(500)).circuit_breaker(CircuitBreaker::default());
    let store = store.fail_closed().keep_corrections(100_000);
    let work = Arc::new(Work {
        table: table.into(),
        journal: File::create(journal)?,
        limiter: Limiter::new([units(), streams()]).store(store.clone()),
        jobs: Jobs::new(jobs(), redis),
        number,
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let work = Arc::clone(&work);
        workers.spawn(async move { work.all(Random::new(WORKERS * number + worker)).await });
    }
    println!("works");
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    work.is_over.store(true, Ordering::Relaxed);
    workers.join_all().await.into_iter().collect::<io::Result<()>>()?;
    let unsent = work.limiter.close(CLOSE_WITHIN).await;
    let counts = store.kept_corrections();
    let lost = counts.expired + counts.refused + counts.unknown;
    work.write(format_args!("closed {} {lost}", u8::from(unsent.is_nothing())))?;
    Ok(())
}

struct Work {
    table: PathBuf,
    journal: File,
    limiter: Limiter<ProcessStore>,
    jobs: Jobs<RedisStore>,
    number: u64,
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Work {
    async fn all(&self, mut random: Random) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            // A few customers reach their limits.
            let some = if random.below(2) == 0 { 20 } else { CUSTOMERS };
            let customer = random.below(some);
            match random.below(8) {
                0 => self.take(customer).await?,
                1 => self.release(customer, &mut random).await?,
                _ => self.stream(customer, &mut random).await?,
            }
        }
        Ok(())
    }

    /// Reserves units, and settles them to another number.
    async fn stream(&self, customer: u64, random: &mut Random) -> io::Result<()> {
        let (id, row, key) = (self.id(), self.row(customer)?, key(customer));
        let (estimate, used) = (1 + random.below(10), random.below(20));
        let limit = match row.units {
            Limit::Of(quota) => quota.limit(),
            Limit::Own => units().capacity(),
            Limit::Unlimited | Limit::Nothing => 0,
        };
        self.write(format_args!("ask {id} {customer} {estimate} {limit}"))?;
        let questions =
            [Question::new("units", &key, estimate).limit(row.units), Question::new("streams", &key, 1)];
        let mut permit = match self.limiter.check_each(&questions).await {
            Ok(permit) => permit,
            Err(denial) => {
                let is_nothing = denial.reason() == Reason::NothingAllowed;
                assert_eq!(row.units == Limit::Nothing, is_nothing, "{denial}");
                let answer = if denial.reason() == Reason::Unavailable { "unknown" } else { "refused" };
                self.write(format_args!("{answer} {id}"))?;
                if answer == "unknown" {
                    sleep(REST).await;
                }
                return Ok(());
            }
        };
        if row.units == Limit::Unlimited {
            return self.write(format_args!("refused {id}"));
        }
        self.write(format_args!("granted {id}"))?;
        self.write(format_args!("settle {id} {used}"))?;
        let settled = permit.settle_each(&[("units", used)]).await[0];
        let (charged, kept, unknown) = (settled.charged, settled.kept, settled.unknown);
        self.write(format_args!("settled {id} {charged} {kept} {unknown}"))
    }

    async fn take(&self, customer: u64) -> io::Result<()> {
        let (job, row) = (self.id(), self.row(customer)?);
        let Ok(limited) = self.jobs.try_limit(row.jobs) else { panic!("a row allows {} jobs", row.jobs) };
        self.write(format_args!("take {job} {customer} {}", row.jobs))?;
        let taken = limited.take(&key(customer), JobId::try_new(&job).map_err(io::Error::other)?, HOUR).await;
        match taken {
            Ok(JobTake::Held { attempt, .. }) => self.write(format_args!("held {job} {attempt}")),
            Ok(JobTake::Full { .. }) => self.write(format_args!("full {job}")),
            Err(_) => self.write(format_args!("lost {job}")),
        }
    }

    /// Releases a job that any process has taken.
    async fn release(&self, customer: u64, random: &mut Random) -> io::Result<()> {
        let Ok(holders) = self.jobs.holders(&key(customer)).await else { return Ok(()) };
        if holders.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = holders.iter().map(|holder| &*holder.id).collect();
        let job = random.one_of(&ids);
        self.write(format_args!("release {job}"))?;
        let released =
            self.jobs.release(&key(customer), JobId::try_new(job).map_err(io::Error::other)?).await;
        match released {
            Ok(_) => self.write(format_args!("released {job}")),
            Err(_) => self.write(format_args!("unreleased {job}")),
        }
    }

    /// # Panics
    /// If it cannot be read: such a request must not be decided.
    fn row(&self, customer: u64) -> io::Result<Row> {
        let table = fs::read_to_string(&self.table)?;
        let at = usize::try_from(customer).map_err(io::Error::other)?;
        let row = table.lines().nth(at).expect("a customer has a row");
        let (units, jobs) = row.split_once(' ').expect("a row has two words");
        Ok(Row { units: units.parse().expect("a limit"), jobs: jobs.parse().expect("a number") })
    }

    /// A name that nothing else has.
    fn id(&self) -> String {
        format!("{}-{}", self.number, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a step to the journal, in one call, so that it outlives a killed process.
    fn write(&self, step: Arguments<'_>) -> io::Result<()> {
        (&self.journal).write_all(format!("{} {step}\n", micros()).as_bytes())
    }
}

/// The clock that all processes share.
#[expect(clippy::disallowed_methods, reason = "it is no clock of a decision")]
fn micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since_epoch.as_micros()).expect("a time before the year 584,000")
}
