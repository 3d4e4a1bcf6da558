//! What stands around every page: head, navigation, who looks, and where the numbers come from.

use crate::address::{Filters, Page};
use crate::problem::Problem;
use crate::viewer::Viewer;
use maud::{DOCTYPE, Markup, html};

/// A page before it is put into its frame.
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) body: Markup,
}

/// How often a page may ask to be loaded again, in seconds.
const REFRESH_SECONDS: std::ops::RangeInclusive<u32> = 5..=3_600;

/// The whole document.
pub(crate) fn framed(sheet: &Sheet, page: Option<&Page>, filters: &Filters, viewer: &Viewer) -> Markup {
    let refresh = filters.get("refresh").parse::<u32>().ok().filter(|it| REFRESH_SECONDS.contains(it));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = refresh { meta http-equiv="refresh" content=(seconds); }
                title { (sheet.title) " · Pillion" }
                link rel="stylesheet" href=(Page::Style.path());
                link rel="icon" type="image/svg+xml" href=(Page::Icon.path());
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href=(Page::Cluster.path()) aria-label="Pillion, the cluster now" { (mark()) "Pillion" }
                    nav aria-label="Pages" {
                        ul {
                            @for (target, name) in &Page::NAVIGATION {
                                li { a href=(target.path()) aria-current=[(Some(target) == page).then_some("page")] { (name) } }
                            }
                        }
                    }
                    p.viewer { (viewer.sentence()) }
                }
                main #main tabindex="-1" {
                    h1 { (sheet.title) }
                    (sheet.body)
                }
                footer {
                    p { "Read-only: nothing here changes a job. " span.muted { "The same answers as " code { "pillion" } " gives on the command line." } }
                    @if let Some(page) = page {
                        p {
                            @if refresh.is_some() {
                                a href=(filters.address(page, &[("refresh", "")])) { "Stop loading this page again" }
                            } @else {
                                a href=(filters.address(page, &[("refresh", "15")])) { "Load this page again every 15 seconds" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The rider and, behind, the passenger.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" focusable="false" {
            rect.rider x="3" y="5" width="17" height="22" rx="5" {}
            rect.pillion x="15" y="11" width="14" height="16" rx="5" {}
        }
    }
}

/// A picture of its own, for the browser's tab.
pub(crate) const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect x="3" y="5" width="17" height="22" rx="5" fill="#2b5f9e"/><rect x="15" y="11" width="14" height="16" rx="5" fill="#12866f"/></svg>"##;

/// A page that says why there is none.
pub(crate) fn refused(problem: &Problem) -> Sheet {
    let title = problem.status.canonical_reason().unwrap_or("This did not work");
    Sheet {
        title: format!("{} {title}", problem.status.as_u16()),
        body: html! {
            p.problem role="alert" { (problem.sentence) }
            p { a href=(Page::Cluster.path()) { "To the cluster now" } }
        },
    }
}
