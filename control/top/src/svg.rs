//! A screen as a picture that browsers show.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use crate::app::App;
use crate::screen;

/// Of one character, in pixels.
const CELL: (u32, u32) = (8, 17);
/// Between a line's top and what its letters stand on.
const BASE: u32 = 13;
const MARGIN: u32 = 12;
const BACKGROUND: &str = "#16181d";
const TEXT: &str = "#d8dce4";

/// What a screen of this size shows, without the line of keys. Letters that XML keeps for itself or forbids, which a
/// program's name may hold, are written so that they are shown or left out.
#[must_use]
pub fn picture(app: &App, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height.saturating_add(1)));
    screen::draw(app, buffer.area, &mut buffer);
    let (right, bottom) = (u32::from(width) * CELL.0 + 2 * MARGIN, u32::from(height) * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right} {bottom}\" width=\"{right}\" \
         height=\"{bottom}\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n<g \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\" \
         xml:space=\"preserve\">\n"
    );
    for y in 0..height {
        let row: Vec<&Cell> = (0..width).map(|x| &buffer[(x, y)]).collect();
        let mut at = 0;
        // Letters of one colour that stand beside each other, up to a gap, are one text: where they begin is said, so
        // a column is where it is whatever the font.
        while at < row.len() {
            let is_alike = |cell: &&&Cell| (cell.fg, cell.modifier) == (row[at].fg, row[at].modifier);
            let is_gap = |i: usize| row[i].symbol() == " " && row.get(i + 1).is_none_or(|next| next.symbol() == " ");
            let alike = row[at..].iter().take_while(is_alike).count();
            let count = (at..at + alike).take_while(|i| !is_gap(*i)).count();
            if count > 0 {
                let text: String = row[at..at + count].iter().map(|cell| escaped(cell.symbol())).collect();
                let (x, y) = (MARGIN + at as u32 * CELL.0, MARGIN + u32::from(y) * CELL.1 + BASE);
                let (length, look) = (count as u32 * CELL.0, look(row[at]));
                writeln!(svg, "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\"{look}>{text}</text>")
                    .expect("a string takes everything");
            }
            at += count.max(1);
        }
    }
    svg + "</g>\n</svg>\n"
}

fn look(cell: &Cell) -> String {
    let colour = match cell.fg {
        Color::Cyan => "#56b6c2",
        Color::Red => "#f0717a",
        Color::Yellow => "#e5c07b",
        Color::Green => "#8cc570",
        _ => TEXT,
    };
    let bold = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    format!(" fill=\"{colour}\"{bold}{dim}")
}

fn escaped(symbol: &str) -> String {
    let one = |letter: char| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        letter if letter.is_control() => "\u{fffd}".to_owned(),
        letter => letter.to_string(),
    };
    symbol.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Sort;
    use crate::model::Model;
    use crate::model::tests::reports;

    #[test]
    fn a_picture_has_what_the_screen_has_and_a_strangers_name_is_no_part_of_its_markup() {
        let mut app = App::new(Sort::Waited, String::new(), None);
        let mut model = Model::default();
        reports().into_iter().filter_map(|report| model.take(report)).for_each(|view| app.view = view);
        app.view.sessions[0].client.program = "</svg><x\u{1b}&".to_owned();
        let svg = picture(&app, 170, 4);
        for part in ["orion-top", "why: 80% of the time is waited", "1.0GiB/4.0GiB", "&lt;/svg&gt;&lt;x", "&amp;"] {
            assert!(svg.contains(part), "{part} is not in\n{svg}");
        }
        assert_eq!((svg.matches("</svg>").count(), svg.matches('\u{1b}').count()), (1, 0), "{svg}");
        assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
        // It is as tall as it was asked to be, without the keys.
        assert!(svg.contains("height=\"92\"") && !svg.contains("q quit"), "{svg}");
        // How slow a session is has a colour.
        assert!(svg.lines().any(|line| line.contains("why: 80%") && line.contains("#f0717a")), "{svg}");
    }
}
