//! Benchmarks.
mod crowd;
mod measure;
mod pairs;
mod redisson;
mod resp;
mod ring;
mod server;
use anyhow::Result;
use crowd::Crowd;
use measure::{Figure, sample};
use pairs::Manner;
use server::{Kind, Server};
use std::rc::Rc;
use std::time::Duration;
fn main() -> Result<()> {
    let scripts = Rc::new(redisson::Scripts::of(std::path::Path::new(
        "target/redisson/4.7.0/redisson-4.7.0.jar",
    ))?);
    let what = std::env::args().nth(1).unwrap_or_default();
    let secs = Duration::from_millis(
        std::env::args()
            .nth(2)
            .map_or(500, |s| s.parse().unwrap_or(500)),
    );
    let mut plain = Server::start(Kind::Plain, &[])?;
    let mut module = Server::start(Kind::Module, &[])?;
    let mut inter = Server::start(Kind::Intercepting, &[])?;
    for s in [&mut plain, &mut module, &mut inter] {
        for sc in [&scripts.try_lock, &scripts.lock, &scripts.unlock] {
            let _: String = s.run(&[b"SCRIPT", b"LOAD", &sc.text])?;
        }
    }
    if what == "pairs" {
        let c = |m, s: &Server| {
            Crowd::connect(s.address(), (0..50).map(|i| pairs::pairs(m, &scripts, i)))
        };
        let mut all = vec![
            ("fairlock", c(Manner::Fairlock, &module)?, 1),
            ("set", c(Manner::Set, &plain)?, 0),
            ("evalsha", c(Manner::EvalSha, &plain)?, 0),
            ("eval", c(Manner::Eval, &plain)?, 0),
            ("i-evalsha", c(Manner::EvalSha, &inter)?, 2),
            ("i-eval", c(Manner::Eval, &inter)?, 2),
        ];
        let mut figs = vec![(Figure::default(), Figure::default()); all.len()];
        for _ in 0..3 {
            for (i, (_, crowd, s)) in all.iter_mut().enumerate() {
                let s = match s {
                    0 => &mut plain,
                    1 => &mut module,
                    _ => &mut inter,
                };
                let x = sample(s, crowd, secs)?;
                figs[i].0.push(x.rate);
                figs[i].1.push(x.cpu);
            }
        }
        for ((n, ..), (r, c)) in all.iter().zip(&figs) {
            println!(
                "{n:10} {:9.0}/s {:?}  cpu {:.2} {:?}  x{:.2} rate of set {:.2}",
                r.median(),
                r.range(),
                c.median(),
                c.range(),
                c.by(&figs[0].1).median(),
                r.by(&figs[1].0).median()
            );
        }
    } else {
        for n in std::env::args()
            .nth(3)
            .map_or(vec![2usize, 16, 100, 1000], |s| {
                s.split(",").map(|x| x.parse().unwrap_or(2)).collect()
            })
        {
            let mut a = Crowd::connect(
                module.address(),
                (0..n).map(|i| ring::Fairlock::new(&format!("r{n}"), i)),
            )?;
            let mut b = Crowd::connect(
                plain.address(),
                (0..n).map(|_| ring::Token::new(&format!("t{n}"))),
            )?;
            let _: i64 = plain.run(&[b"RPUSH", format!("t{n}").as_bytes(), b"token"])?;
            let mut c = Crowd::connect(
                inter.address(),
                (0..0).map(|i| ring::Redisson::new(&scripts, &format!("r{n}"), i)),
            )?;
            let mut d = Crowd::connect(
                plain.address(),
                (0..n).map(|i| ring::Redisson::new(&scripts, &format!("r{n}"), i)),
            )?;
            for _ in 0..3 {
                let x = sample(&mut module, &mut a, secs)?;
                let y = sample(&mut plain, &mut b, secs)?;
                let z = sample(&mut plain, &mut d, secs)?;
                println!(
                    "{n} fair {:.0} {:.1}us blpop {:.0} {:.1}us lua {:.0} {:.1}us  ratios {:.2} {:.2}",
                    x.rate,
                    x.cpu,
                    y.rate,
                    y.cpu,
                    z.rate,
                    z.cpu,
                    x.rate / y.rate,
                    x.rate / z.rate
                );
            }
            let _ = &mut c;
        }
    }
    Ok(())
}
