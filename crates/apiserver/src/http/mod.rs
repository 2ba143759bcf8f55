//! HTTP: from a request to a verb, and from its result to an answer.

mod accept;
mod answer;
pub(crate) mod path;
mod proxy;
pub(crate) mod query;
mod read;
mod selection;
mod watch;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};

use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::discovery;
use crate::kinds::reviews::User;
use crate::openapi;
use crate::status::{Reason, Status};
use path::{Path, Target};
use query::Query;

/// The largest body of a request, as upstream.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// What answers requests.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(crate) api: Arc<Api>,
    /// Ends watches and proxied streams.
    pub(crate) stop: CancellationToken,
    pub(crate) kubelets: proxy::Kubelets,
}

impl Front {
    pub(crate) fn new(api: Arc<Api>, stop: CancellationToken) -> Self {
        Self { api, stop, kubelets: proxy::Kubelets::new() }
    }

    /// The service for all paths.
    pub(crate) fn router(self) -> Router {
        Router::new().fallback(handle).with_state(self)
    }
}

async fn handle(State(front): State<Front>, request: Request<Body>) -> Response<Body> {
    match front.answer(request).await {
        Ok(response) => response,
        Err(status) => {
            if status.reason == Reason::InternalError {
                tracing::warn!(%status, "request failed");
            }
            answer::error(&status)
        }
    }
}

impl Front {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let registry = self.api.registry();
        let path = path::parse(request.uri().path(), &registry);
        // Liveness and version are everybody's to ask.
        match path {
            Ok(Path::Health) => {
                return Ok(answer::typed(StatusCode::OK, "text/plain; charset=utf-8", "ok"));
            }
            Ok(Path::Version) => return Ok(answer::value(StatusCode::OK, &discovery::version())),
            _ => {}
        }
        let user = self.authenticate(request.headers())?;
        let path = path?;
        if let Path::Target(target) = path {
            return self.target(target, &user, request).await;
        }
        if request.method() != Method::GET {
            return Err(Status::method_not_allowed());
        }
        let query = Query::parse(request.uri())?;
        let form = accept::form(request.headers());
        let body = match path {
            Path::CoreVersions | Path::Groups => {
                let core = matches!(path, Path::CoreVersions);
                if let Ok(accept::Form::Discovery(version)) = form {
                    let body = discovery::aggregated(&registry, core, &version).to_string();
                    return Ok(discovery::answer(&version, body));
                }
                if core { discovery::core_versions() } else { discovery::groups(&registry) }
            }
            Path::Group(group) => discovery::group(&registry, &group)?,
            Path::Resources(group, version) => discovery::resources(&registry, &group, &version)?,
            Path::OpenApiV2 => {
                // An empty document parses as protobuf; kubectl 1.28 needs no more.
                return Ok(answer::typed(
                    StatusCode::OK,
                    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                    openapi::v2(),
                ));
            }
            Path::OpenApiV3 => openapi::v3_index(&registry),
            Path::OpenApiV3Of(group, version) => {
                let document = openapi::v3(&registry, &group, &version);
                let document = document.ok_or_else(Status::no_such_path)?;
                return Ok(answer::json(StatusCode::OK, document));
            }
            Path::Target(_) | Path::Version | Path::Health => return Err(Status::no_such_path()),
        };
        let _ = query;
        Ok(answer::value(StatusCode::OK, &body))
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<User, Status> {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        token
            .and_then(|token| self.api.user(token.trim()))
            .ok_or_else(|| Status::new(Reason::Unauthorized, "Unauthorized"))
    }

    async fn target(
        &self,
        target: Target,
        user: &User,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let query = Query::parse(request.uri())?;
        if let (Some(name), Some(subresource)) = (&target.name, &target.subresource) {
            let (name, subresource) = (name.clone(), subresource.clone());
            return self.subresource(target, &name, &subresource, &query, request).await;
        }
        if target.resource.verbs == crate::resource::Verbs::CreateOnly {
            if request.method() != Method::POST || target.name.is_some() {
                return Err(Status::method_not_allowed());
            }
            return self.review(&target, user, request).await;
        }
        match (request.method().clone(), target.name.clone()) {
            (Method::GET, None) if query.flag("watch") => {
                self.watch(&target, &query, request.headers())
            }
            (Method::GET, None) => self.list(&target, &query, request.headers()),
            (Method::GET, Some(name)) => self.get(&target, &name, &query, request.headers()),
            (Method::POST, None) => self.create(target, &query, request).await,
            (Method::PUT, Some(name)) => self.put(target, &name, &query, request).await,
            (Method::PATCH, Some(name)) => self.patch(target, &name, &query, request).await,
            (Method::DELETE, Some(name)) => self.delete(target, &name, &query, request).await,
            (Method::DELETE, None) => self.delete_all(target, &query, request).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn review(
        &self,
        target: &Target,
        user: &User,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let review = write::decode(&parts.headers, &write::read_body(body).await?)?;
        let known = |token: &str| self.api.user(token);
        let answered = crate::kinds::reviews::answer(&target.resource, review, user, known);
        Ok(answer::value(StatusCode::CREATED, &answered))
    }
}
