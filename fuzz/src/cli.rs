//! Sizes and times on the command line.

use super::input::Input;
use chunkmount::cli::Cli;
use clap::Parser;

/// An argument for `--cache-size`, and after a newline one for `--refresh`.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let (size, seconds) = (String::from_utf8_lossy(input.line()), String::from_utf8_lossy(input.0));
    if let Ok(cli) = Cli::try_parse_from(["chunkmount", "source", "mountpoint", &format!("--cache-size={size}")]) {
        let digits: String = size.trim_start_matches('+').chars().take_while(char::is_ascii_digit).collect();
        let power = match size.trim_start_matches('+').chars().nth(digits.len()).map(|c| c.to_ascii_lowercase()) {
            Some('k') => 10,
            Some('m') => 20,
            Some('g') => 30,
            Some('t') => 40,
            _ => 0,
        };
        let expected = digits.parse::<u128>().ok().map(|n| n << power);
        assert_eq!(cli.view.cache_size.map(u128::from), expected, "{size}");
    }
    if let Ok(cli) = Cli::try_parse_from(["chunkmount", "source", "mountpoint", &format!("--refresh={seconds}")]) {
        let expected = seconds.parse::<f64>().ok().map(|s| s.round());
        assert!(
            cli.view.refresh.map(|r| r.as_secs_f64().round()).zip(expected).is_some_and(|(a, b)| (a - b).abs() <= 1.0),
            "{seconds}"
        );
    }
}
