//! Recipes to copy, one screen each.
//!
//! | you want | recipe |
//! |---|---|
//! | to limit log-ins by address and by name | [callers](callers#log-in-by-address-and-name) |
//! | to limit the user of a JWT | [callers](callers#jwt) |
//! | to limit the messages of a WebSocket | [callers](callers#websockets) |
//! | to charge a GraphQL query by what it asks for | [callers](callers#graphql-cost) |
//! | the client's address behind Cloudflare | [proxies](proxies#cloudflare) |
//! | the client's address behind an AWS load balancer | [proxies](proxies#aws-application-load-balancer) |
//! | the client's address behind CloudFront | [proxies](proxies#cloudfront) |
//! | the client's address on fly.io | [proxies](proxies#flyio) |
//! | the client's address in AWS Lambda | [proxies](proxies#aws-lambda) |
//! | your application's JSON error | [applications](applications#the-applications-json-error) |
//! | several limits on one store | [applications](applications#one-store-for-many-layers) |
//! | to leave out health checks | [applications](applications#health-checks) |
//! | reqwest within another API's limit | [applications](applications#reqwest) |
//! | the 429 in an OpenAPI document of utoipa | [applications](applications#utoipa) |
//! | to test a limit | [applications](applications#tests) |
//! | to try a limit without refusing requests | [applications](applications#a-limit-in-the-shadow) |

pub mod applications;
pub mod callers;
pub mod proxies;
