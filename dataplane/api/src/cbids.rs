//! The numbers by which CUPTI calls functions.

/// By number, "" for a number that has no function.
pub struct Cbids {
    pub driver: Vec<&'static str>,
    pub runtime: Vec<&'static str>,
}

impl Cbids {
    pub fn load() -> Result<Cbids, String> {
        Ok(Cbids {
            driver: parse(include_str!("../data/cupti-driver-13000.txt"))?,
            runtime: parse(include_str!("../data/cupti-runtime-13000.txt"))?,
        })
    }

    /// The number of an exported symbol of the driver.
    pub fn driver(&self, symbol: &str) -> Option<usize> {
        self.driver.iter().position(|name| *name == symbol)
    }
}

fn parse(text: &'static str) -> Result<Vec<&'static str>, String> {
    let mut names = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (number, name) = line.split_once(' ').ok_or_else(|| format!("no number and name: {line}"))?;
        let number: usize = number.parse().map_err(|e| format!("{line}: {e}"))?;
        if names.len() <= number {
            names.resize(number + 1, "");
        }
        names[number] = name;
    }
    Ok(names)
}
