//! The bound, the order of leaving, and who waits for whom.

use super::*;

fn block(n: usize) -> Block {
    Block::new(vec![7; n], None)
}

#[test]
fn least_recently_used_goes_first_and_the_bound_holds() {
    let cache = Cache::new(3 * (100 + OVERHEAD));
    for id in [1, 2, 3, 1, 4] {
        cache.get(id.into(), None, None, || Ok(block(100))).unwrap();
    }
    assert!(cache.usage().0 <= 3 * (100 + OVERHEAD));
    let made = AtomicUsize::new(0);
    for id in [1, 3, 4, 2] {
        cache
            .get(id.into(), None, None, || {
                made.fetch_add(1, Ordering::Relaxed);
                Ok(block(100))
            })
            .unwrap();
    }
    assert_eq!(made.load(Ordering::Relaxed), 1, "only block 2 was dropped");
}

#[test]
fn a_block_over_the_bound_is_kept_alone() {
    let cache = Cache::new(10);
    cache.get(1.into(), None, None, || Ok(block(5))).unwrap();
    cache.get(2.into(), None, None, || Ok(block(1000))).unwrap();
    cache.get(2.into(), None, None, || panic!("kept")).unwrap();
    assert_eq!(cache.usage().2, 1);
}

#[test]
fn many_readers_of_one_cold_block_cause_one_decode() {
    let cache = Cache::new(1 << 20);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let block = cache.get(9.into(), None, None, || {
                    made.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(30));
                    Ok(block(64))
                });
                assert_eq!(block.unwrap().length(), 64);
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[test]
fn another_version_is_another_block() {
    let cache = Cache::new(1 << 20);
    let version = |s: &str| Some(Version::Tag(s.into()));
    let (old, new) = (version("old"), version("new"));
    cache.get(1.into(), old.as_ref(), None, || Ok(Block::new(vec![1], old.clone()))).unwrap();
    let got = cache.get(1.into(), new.as_ref(), None, || Ok(Block::new(vec![2], new.clone()))).unwrap();
    assert_eq!(got.part(0, 9, <[u8]>::to_vec).unwrap(), [2]);
    assert!(cache.get(1.into(), old.as_ref(), None, || Err(Error::not_found())).is_err());
}

#[test]
fn an_error_answers_twice_and_a_panic_ends_the_wait() {
    let cache = Cache::new(1 << 20);
    assert_eq!(cache.get(1.into(), None, None, || Err(Error::corrupt("x"))).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(cache.get(1.into(), None, None, || panic!("asked again at once")).unwrap_err().kind(), Kind::Corrupt);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get(2.into(), None, None, || panic!("decoder"))));
    assert!(result.is_err());
    assert_eq!(cache.get(2.into(), None, None, || Ok(block(1))).unwrap_err().kind(), Kind::Bug);
}

#[test]
fn who_begins_to_make_a_block_is_the_only_one() {
    let cache = Cache::new(1 << 20);
    let begin = |id: u64| cache.begin(id.into(), None);
    let making = begin(1).unwrap();
    assert!(begin(1).is_none() && begin(2).is_some());
    // Others wait for it, and get what it makes.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get(1.into(), None, None, || panic!("it is being made")).unwrap().length());
        while cache.counters().waits.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        making.make(None, || Ok(block(64))).unwrap();
        assert_eq!(waiting.join().unwrap(), 64);
    });
    // It is in memory now; what has just failed is not tried again; what was given up (as 2 above) has failed.
    assert!(begin(1).is_none());
    assert!(begin(3).unwrap().make(None, || Err(Error::corrupt("x"))).is_err());
    assert!(begin(3).is_none());
    assert_eq!(cache.get(2.into(), None, None, || panic!("asked again at once")).unwrap_err().kind(), Kind::Bug);
}
