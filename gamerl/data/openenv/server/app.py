"The web server of the environment: `uvicorn server.app:app`, or `python -m server.app`."

import argparse

import uvicorn

from gamerl.openenv import app


def main():
    "Serve on the port of the command line."
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    uvicorn.run(app, host=args.host, port=args.port)


if __name__ == "__main__":
    main()
