"""A search in FastAPI, with limits: uvicorn fastapi_app:app"""

import os

from fastapi import FastAPI

import tallygate

app = FastAPI()
app.add_middleware(
    tallygate.TallygateASGI,
    client=tallygate.AsyncClient(os.environ["TALLYGATE"]),  # http://127.0.0.1:8080, the decision server
    emitter=tallygate.Emitter(os.environ["KAFKA"], os.environ.get("TOPIC", "tallygate.events"), name="shop"),
    uid=tallygate.header("X-User"),  # a real service asks its authentication
    api=tallygate.pattern_api(app),  # GET /search/query is get.search.query
    skip={"/healthz"},
)


@app.get("/search/query")
async def search(q: str = "") -> dict[str, list[str]]:
    tallygate.note(empty=q == "")  # what only the handler knows, for the event
    return {"found": []}


@app.get("/healthz")
async def healthz() -> str:
    return "ok"
