//! Asking all masters the same, again and again.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Link, Seeds, Sender, Target, Trouble, masters};

/// How long one server may keep the others waiting.
const LOOK: Duration = Duration::from_secs(2);

/// All masters, on connections that are kept.
#[derive(Debug)]
pub struct Everyone {
    seeds: Seeds,
    known: Vec<Target>,
    links: HashMap<String, Link>,
}

/// What one of them answered.
#[derive(Debug)]
pub struct Answer<T> {
    /// Where it is.
    pub address: String,
    /// What it said, or why it did not.
    pub said: Result<T, Trouble>,
}

impl Everyone {
    /// Begins with one server.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            known: vec![target.clone()],
            seeds: Seeds::new(target),
            links: HashMap::new(),
        }
    }

    /// The last known masters.
    pub fn known(&self) -> impl Iterator<Item = String> {
        self.known.iter().map(Target::address)
    }

    /// Asks all at once; their answers in the order of their slots. An error if there is no server to ask.
    pub async fn ask<T, Q, A>(&mut self, question: Q) -> Result<Vec<Answer<T>>, Trouble>
    where
        T: Send + 'static,
        Q: FnOnce(Sender) -> A + Clone + Send + 'static,
        A: Future<Output = Result<T, Trouble>> + Send,
    {
        self.known = self.masters().await?;
        self.seeds.remember(self.known.clone());
        let mut asked = JoinSet::new();
        for (place, target) in self.known.iter().cloned().enumerate() {
            let link = self.links.remove(&target.address());
            let question = question.clone();
            asked.spawn(async move { (place, ask(target, link, question).await) });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            // A task that was cancelled or panicked has no answer.
            let Ok((place, (answer, link))) = answer else {
                continue;
            };
            if let Some(link) = link {
                self.links.insert(answer.address.clone(), link);
            }
            answers.push((place, answer));
        }
        answers.sort_unstable_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// The current masters, from the first server that answers.
    async fn masters(&mut self) -> Result<Vec<Target>, Trouble> {
        for link in self.links.values() {
            if let Ok(Ok(masters)) = timeout(LOOK, masters(link)).await {
                return Ok(masters);
            }
        }
        let link = self.seeds.connect().await?;
        let masters = masters(&link).await?;
        self.links.insert(link.target.address(), link);
        Ok(masters)
    }
}

/// Asks one server, on the connection that there is, or on a new one.
async fn ask<T, Q, A>(target: Target, link: Option<Link>, question: Q) -> (Answer<T>, Option<Link>)
where
    Q: FnOnce(Sender) -> A,
    A: Future<Output = Result<T, Trouble>>,
{
    let address = target.address();
    let asked = timeout(LOOK, async {
        let link = match link {
            Some(link) => link,
            None => target.connect().await?,
        };
        let said = question(link.sender()).await?;
        Ok((said, link))
    });
    let (said, link) = match asked.await {
        Ok(Ok((said, link))) => (Ok(said), Some(link)),
        Ok(Err(trouble)) => (Err(trouble), None),
        Err(_) => (Err(Trouble::silent(&target)), None),
    };
    (Answer { address, said }, link)
}
