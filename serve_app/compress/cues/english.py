"""English: the word classes that bind, wish, suppose, speak of others, change and withdraw."""

from __future__ import annotations

import re

from serve_app.compress.cues.english_values import FIGURES, UNITS, VALUES, WORDS, number
from serve_app.compress.cues.latin import either
from serve_app.compress.cues.table import Cues

_KIN = either(
    "brother sister sibling mum mom mam mother mummy dad father daddy gran grandma grandmother granny nan nana grandpa "
    "grandfather grandad granddad cousin aunt auntie aunty uncle nephew niece stepmother stepfather stepmum stepdad "
    "stepson stepdaughter stepbrother stepsister godmother godfather ex ex-wife ex-husband relative relatives "
    "in-law in-laws parents grandparents grandkids "
    "friend friends mate mates pal buddy bestie neighbour neighbor neighbours neighbors flatmate flatmates roommate "
    "roommates housemate housemates colleague colleagues coworker coworkers co-worker co-workers workmate desk-mate "
    "classmate classmates deskmate teammate teammates hairdresser barber boyfriend girlfriend bf gf lodger critic guys chap chaps apprentice intern "
    "predecessor acquaintance bloke lad guy woman man lady girl boy fella dude someone somebody people couple folks "
    "mother-in-law father-in-law sister-in-law brother-in-law son-in-law daughter-in-law"
)
_OTHERS = (
    rf"(?:(?:my|our|his|her|their|the|a|an|one of my|one of our|some|this|that|another|every"
    rf"|half) (?:[\w'-]+ ){{0,3}}?"
    rf"(?:{_KIN})|(?:aunt|auntie|uncle|cousin|granny|grandma|grandpa|nan) [a-z]+|\b(?:mum|mom|dad|gran|grandma"
    rf"|nan)|next door|(?:the|a) (?:[a-z-]+ ){1, 2}(?:below|above|across|down the (?:road|street|hall|corridor)"
    rf"|up the (?:road|street)|opposite|upstairs|downstairs|at the other end|on the corner)|the (?:upstairs"
    rf"|downstairs) [a-z]+|\bmrs? [a-z]+ (?:opposite|next door|(?:the|a) (?:[a-z-]+ ){1, 2}(?:below|above"
    rf"|across|down the (?:road|street|hall|corridor)|up the (?:road|street)|opposite|upstairs|downstairs"
    rf"|at the other end|on the corner)|the (?:upstairs|downstairs) [a-z]+|upstairs|downstairs|across)"
    rf"|the people (?:at|next|upstairs|downstairs|across)"
    rf"|(?:my|our|his|her|their|the) [a-z-]+'s (?:{_KIN}|wife|husband|kids?|daughters?|sons?|child(?:ren)?|baby|team|boss)"
    rf"|\b(?:someone|somebody|people|folks|friends|colleagues|neighbours|neighbors)(?= (?:at|in|from|on|i|who"
    rf"|around|here|do|are|say|swear|can)\b))"
)
_SAYS_OF_OTHERS = (
    r"(?:'s|s')?(?: [\w'-]+){0,4}? "
    r"(?:is|are|was|were|has|have|had|does|do|did|can|can't|cannot|could|couldn't|won't|will|would|must|never"
    r"|always|only"
    r"|hates?|loves?|likes?|swears?|needs?|wants?|insists?|refuses?|keeps?|eats?|drinks?|avoids?|reacts?"
    r"|breaks?|gets?"
    r"|goes|got|'ve|'d|wrote|rang|felt|knew|ran|saw|thought|brought|broke|chose|drank|drove|fell|flew|forgot|found|grew|heard|held|left|lost|met|sent|sold|spoke|stood|swore|threw|wore|won|takes?|buys?|pays?|uses?|prefers?|thinks?|says?|said|told|claims?|lives?|runs?|makes?"
    r"|doesn't|don't|didn't"
    r"|isn't|aren't|hasn't|haven't|spends?|spent|went|got|wears?|allows?|bans?|banned|writes?|ships?|pins?|pinned"
    r"|follows?|sticks?|puts?|set|sets|charges?|books?|orders?|ordered|bought|paid|works?|sleeps?|flies"
    r"|drives?|carries"
    r"|stands?|gave|gives?|turns?|wakes?|comes?|came|moved|just|still|also|apparently|[a-z]{3,}s|[a-z]{3,}ed"
    r"|i know|of mine)\b"
)

_DOES = either(
    "book use put make set keep send give write add include leave take mark call deliver ship pay schedule plan order buy get "
    "reserve park store save paint serve seat host hold deploy run drop place file sign label tag wrap cook charge train hang "
    "pin lock split name spell address bring pick collect cut limit cap move switch push print pack separate format measure"
)
_RELATES = either(
    "to at in on with by for before after into from as under behind until till every only near over within between per"
)
_IS = either(
    "is are was were has have had must should shall may might can can't cannot could will won't mustn't needs need gets get goes "
    "go costs cost leaves leave starts start ends end begins begin arrives arrive closes close opens open comes come runs run times "
    "takes take stays stay fits weighs isn't aren't wasn't weren't doesn't don't does do moves moved wants want hates eats eat "
    "expires feeds feed sits lasts last happens happen meets meet"
)

ENGLISH = Cues(
    language="english",
    clause_end=re.compile(
        r";\s|:\s(?=\S)|\s[–—-]{1,2}\s|\.\.\.+\s?|…\s?|\)\s|\s(?=\()"
        r"|,\s(?=(?:but|and|so|or|because|since|though|although|however|except|yet|which|then|i|we|my|our|it"
        r"|it's|that's|he|she|they|you"
        r"|i'm|i'll|i've|i'd|we're|we'll|we've|we'd|he's|she's|they're|please|no|not|nothing|never|don't|just"
        r"|only|somebody|someone|mine|both|all|everyone|nobody|people"
        r"|make|keep|put|use|let's|there's|as|if|from|after|before|in|at|by|the|a|his|her|their)\b)"
        r"|\s(?=(?:but|because|so that|although|though|whereas)\s)"
        r"|\s(?=and (?:i|we|it|he|she|they|please|no|nothing|never|don't|make|keep|put|use|only|also|then|there)\b)"
        r"|\s(?=so (?:if|i|we|it|no|nothing|don't|please|the|make|keep|let's|you|that's)\b)",
        re.IGNORECASE,
    ),
    binds=re.compile(
        r"\b(?:must(?!'ve| have been| say| admit)|mustn't|(?:have|has|had|having|'ve|'s|got"
        r"|gotta)(?: got)? to\b(?! (?:say|admit|laugh|wonder|love))"
        r"|needs? (?:to|at least|[a-z]+ing)\b|needn't|ought to|oughtn't|should(?:n't)?\b|shan't|cannot"
        r"|can ?not|can't(?! (?:wait|believe|beat|imagine|agree|remember|help|complain|tell))"
        r"|won't|will not|don't(?! (?:know|think|remember|worry|mind|care|ask|get me|believe|understand))"
        r"|do not|doesn't (?:eat|do|drink|take|work|have|go|want|like|fly|drive|agree)"
        r"|never(?! (?:mind|knew|thought|been|seen|heard|forget|forgot|fails|ends))|no longer|not (?:to|be|any"
        r"|even|allowed|permitted|going|negotiable|acceptable|an option|available|later|before|after|more|less"
        r"|a (?:minute|penny|cent|day|hair))\b"
        r"|no (?!idea|problem|worries|rush|doubt|wonder|thanks|thank|matter|way|clue|hurry|pressure|offence"
        r"|offense|news|luck|big deal|biggie|joke|kidding|surprise|such|reason|need)[a-z]"
        r"|none of|nothing (?!much|new|special|serious|wrong|happened|like|better|beats|fancy|to\b|in the"
        r"|on the|about|is|was|but)[a-z]+|neither|nor\b|without|w/o\b|except|apart from"
        r"|avoid|exclud|leave (?:it |them |that |him |her |me )?(?:out|off|alone)|keep (?:it |them "
        r"|that )?(?:under|below|within|away|out|off|to|at|in|it|between|the|my)|steer clear|stay (?:away|off"
        r"|on|under|below|within|at|in|with)|off[- ]limits"
        r"|out of the question|non[- ]?negotiable|deal[- ]?breaker|red line|forbid|forbidden|banned?\b|allowed"
        r"|permitted|prohibited|required?|requires|requirement|mandatory|compulsory|essential|vital|crucial"
        r"|critical|no exceptions|strict(?:ly)?|absolutely|under no circumstances|on no account|in no case"
        r"|at all costs"
        r"|only|exclusively|solely|nobody|no one|at most|at least|no (?:more|less|fewer|later|earlier"
        r"|sooner) than|up to|max(?:imum|ed)?\b|min(?:imum)?\b|(?:under|over|below|above|within|between|beyond"
        r"|around|about|roughly|exactly) (?:[£$€] ?)?(?:\d|a (?:hundred|thousand)|one|two|three|four|five|six"
        r"|seven|eight|nine|ten|twenty|thirty|forty|fifty)"
        r"|cap\b|capped|ceiling|limit(?:ed|s)?\b|budget|threshold|exceed|deadline|due (?:on|by|date|in)"
        r"|the latest|until|till\b|by (?:the (?:end|time|weekend|morning|evening|latest|first|middle|start|\d)"
        r"|noon|midnight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april"
        r"|may|june|july|august|september|october|november|december|tomorrow|tonight|end|\d)"
        r"|(?:earlier|later|sooner|less|more|fewer|smaller|bigger|larger|narrower|wider|taller|shorter|heavier"
        r"|lighter|cheaper|older|younger|longer|slower|faster) than|or (?:less|under|fewer|more|below|above"
        r"|earlier|later|nothing|i )|tops\b|fixed|final\b|pinned|set in stone|stick (?:to|with)|stays?\b"
        r"|locked|make sure|ensure|be sure|as long as|so long as|provided|unless|or else|rules?\b|always"
        r"|every (?:single )?time|any ?more|not even|zero\b|refus|reject|declin|don't want|not interested"
        r"|not willing|want (?:it|them|everything|no|nothing)\b|whatever (?:happens|you do)|guarantee|promis"
        r"|insist|wants? (?:me|us|her|him|it)|would rather|'d rather|counts on|depends on|can only|may only"
        r"|is where|straight to|or (?:it|he|she|they|i|we) (?:don't|doesn't|won't|can't)|(?:is|are|'s"
        r"|'re) (?:out|off|finished|a no[- ]go|to (?:stay|be|go|stop|have|keep))\b|no[- ]go\b|[a-z]+[- ]free\b"
        r"|(?:i'm|we're|i am|we are) not [a-z]+ing|(?:well )?alone\b|both (?:have|sign|must|need)"
        r"|in that order|with (?:a|an|the|one|two) (?:[a-z]\b|accent|umlaut|hyphen|capital|silent)|^not (?:the |a )?[a-z]+|(?:and|or) (?:up|above|newer|older|below)\b|either [a-z]+ or|non-)"
    ),
    implicit=re.compile(
        r"\b(?:allerg|intoleran|c(?:o)?eliac|diabet|asthma|epilep|pregnan|breastfeed|\bvegan|vegetarian"
        r"|veggie\b|pescatarian|\bhalal|kosher|muslim|jewish|\bhindu|\bjain\b|buddhist|mormon|fasting|ramadan"
        r"|shabbat|sabbath|\blent\b|teetotal|\bsober\b|recovering|in recovery|haven't had a drink"
        r"|off (?:the )?(?:booze|drink|alcohol|gluten|dairy|meat)\b|faith|religio|for ethical"
        r"|(?:brings?|brought|come|comes) (?:me|him|her|us) out in|blisters|itch|wheez|sworn off|given up (?!on|hope)|gave up (?!on|hope)|quit (?:smoking|drinking|sugar|coffee)|(?:cut|cutting) out (?:all )?[a-z]+|epi-?pen|anaphyla|\bhives\b|\brash(?:es)?\b|swell|break(?:s)? out|(?:in|to"
        r"|into) (?:the )?(?:hospital|a&e|e\.?r\.?\b|casualty)|ambulance|throat|migraines?\b|seizure"
        r"|sets? (?:me|him|her|it|one|them|us) off|sets (?:one )?off|trigger|reacts? (?:badly|to)"
        r"|react (?:badly|to)|(?:makes?|made) (?:me|her|him|us) (?!laugh|smile|happy|wonder|think|cry|feel"
        r"|proud|look|want)[a-z]+|upsets? (?:my|her|his)|(?:doesn't|don't) agree with|can't (?:stomach"
        r"|tolerate|digest)|being sick|sensitive (?:to|gut|stomach|skin)|culprit|kills? (?:me|him|her)"
        r"|would kill"
        r"|wheelchair|crutches|walking stick|\bcane\b|walker\b|mobility|colou?r[- ]?blind|\bdeaf"
        r"|hard of hearing|hearing aid|dyslex|\bblind\b|vertigo|claustrophob|phobia|pacemaker|surgery"
        r"|operation\b|bad (?:knee|back|hip|shoulder|heart)|(?:my|her|his) (?:knee|back|hip|shoulder|heart"
        r"|kidneys?|liver|blood pressure|condition)|ulcer|diagnos|prescri|doctor|(?:gp|consultant|cardiologist"
        r"|surgeon|physio|midwife|dentist|vet|nurse|pharmacist|dermatologist|specialist) (?:said|says|told"
        r"|wants|insists|called|rang|put|has)"
        r"|metoprolol|warfarin|statin|insulin|blood thinner|medication|antibiotic|inhaler|\b(?:i'm|she's|he's"
        r"|i am) on (?!the|my|a|an|it|his|her|this|that|board|call|to|about|top|time)[a-z]{5,}|non[- ]?smok"
        r"|air[- ]gapped|night shifts?|on call\b|visa\b|under (?:nda|embargo)|confidential|gdpr|hipaa|complian"
        r"|legally|by law|legal (?:says|said|wants|requires)|contract|licen[cs]e|insurance)"
    ),
    refusal=re.compile(
        r"\b(?:no,? thank|thanks but no|not interested|i(?:'ll| will) pass\b|turned? (?:it |that |them )?down"
        r"|not for me|i(?:'d| would) rather not|i said no|count me out|i refuse|not having (?:it|that|any)"
        r"|over my dead body|no chance|not happening|don't (?:offer|suggest|send|call|show|recommend|ask|use"
        r"|include|put|book|add|touch|give|hand|bring|buy|order|share|tell|charge|let|leave|contact|e-?mail"
        r"|text|sign|upsell|even)|stop (?:sending|calling|offering|suggesting)|(?:hate|detest|loathe"
        r"|can't stand|can't bear|can't abide|can't face|not going (?:near|through)|won't touch"
        r"|wouldn't touch))"
    ),
    directive=re.compile(
        r"^(?:and |but |so |then |ok |okay |right |also |oh |yes |yep |no |well |actually |now |just |please "
        r"|kindly |in that case |for that |instead ){0,4},? ?(?:please |just )?"
        r"(?:book|use|put|make|set|keep|send|give|write|add|remove|include|exclude|leave|skip|avoid|stick|go"
        r"|take|note|remember|save|mark|call|deliver|ship|charge|pay|schedule|plan|order|buy|get|find|check"
        r"|ensure|split|name|label|spell|address|return|refund|change|move|switch|push|reply|cc|cut|drop|limit"
        r"|cap|round|count|treat|assume|trust|ignore|store|log|run|deploy|test|retry|reserve|stay|start|stop"
        r"|begin|end|finish|sign|email|e-mail|text|ring|copy|paste|replace|swap|raise|lower|turn|read|bear"
        r"|hold|bring|pick|choose|follow|don't|do not|never|always|only|file|park|block|cancel|rename|format"
        r"|return|let|forget|scrap|ditch|lose|serve|cook|seat|invite|tell|ask|cover|paint|fit|measure|allow"
        r"|figure|budget|aim|target|work with|wrap|pack|print|apply|default|fail|reject|log|quote|price|bill"
        r"|invoice|hide|show|list|tag|pin|bump|merge|build|stretch|extend|shorten)\b"
        r"|\b(?:please|pls|plz)\b|\blet's\b|\b(?:can|could|would|will) you\b|i(?:'d| would) (?:like|need"
        r"|want) (?:you|it|them|the|a|to)|i (?:want|need)\b|we (?:want|need)\b|(?:go|going) (?:with|for)\b"
        r"|that's the one|settle on|decided|we're (?:set|agreed)"
    ),
    literal=re.compile(
        r"\b(?:called|named|names?(?:'s)? (?:is|are|on|in|of)|name's|surname|spel(?:t|led|ling)|double [a-z]\b"
        r"|with (?:a|an|the|one|two) [a-z]\b(?!\w)|one word|capital [a-z]\b|hyphen|umlaut|accent"
        r"|(?:ref(?:erence)?|order|booking|confirmation|tracking|account|policy|case|ticket|invoice|serial"
        r"|model|membership|member|passport|chip|licen[cs]e|reservation|customer|registration|reg|flight|train"
        r"|room|flat|unit|door|gate|locker|file|claim|quote|permit|plate|student|employee|patient|loyalty"
        r"|voucher|promo|discount|access|sort|zip|post|iban|vat|tax|phone|mobile|extension|licence|batch|part"
        r"|sku|po|pnr)(?:'s)?[ -]?(?:number|no\b|code|id\b|ref\b|is\b|:|#|plate)"
        r"|number(?:'s| is)|code(?:'s| is)|address(?:'s| is)|e-?mail(?:'s| is)|pin(?:'s| is)|live (?:at|in|on)"
        r"|postcode|zip|birthday|anniversary|born (?:on|in)|appointment|scheduled|booked|takes place"
        r"|(?:starts?|ends?|opens?|closes?|arrives?|leaves?|lands?|departs?|expires?|renews?) (?:at|on|by|in"
        r"|from)|(?:is|are|'s) (?:due|on the|on|at)\b|measured?|measures|weighs?|take-home|rent\b|salary"
        r"|deposit|mortgage|instal?ments?|fee\b|size\b|card ending|dose|dosage|temperature|version|port\b|branch|endpoint"
        r"|schema|table|column|timeout|namespace|region)"
    ),
    lasting=re.compile(
        r"\b(?:allerg|intoleran|c(?:o)?eliac|diabet|asthma|epilep|vegan|vegetarian|pescatarian|halal|kosher"
        r"|muslim|jewish|hindu"
        r"|teetotal|faith|religio|epi-?pen|anaphyla|hives\b|colou?r[- ]?blind|deaf\b|dyslex|wheelchair"
        r"|pacemaker|claustrophob"
        r"|phobia|my (?:full |last |first |preferred |legal )?(?:sur)?name(?:'s| is)|call me\b|my pronouns"
        r"|my birthday"
        r"|i (?:will |would |can )?never\b|i (?:don't|do not|won't|can't|cannot) (?:eat|drink|do|fly|drive"
        r"|smoke|have|touch|take)\b"
        r"|as a rule|in general|ever again|from now on|from here on|in future|in the future"
        r"|anything you (?:suggest|send|write|recommend)"
        r"|(?:every|each|all) (?:reply|replies|answer|answers|e-?mail|e-?mails|order|orders|message|messages)"
        r"|whenever you)"
    ),
    soft=re.compile(
        r"\b(?:would (?:also )?(?:be|look|feel) (?:[a-z]+ ){0,2}?(?:nice|lovely|lush|great|cool|good|fun|neat"
        r"|ideal|perfect|sweet|handy|a (?:treat|bonus|plus|dream|nice))|\bideally\b|if (?:at all )?possible"
        r"|preferabl|\bprefer(?:red|s|ence)?\b|\bi(?:'d| would)? (?:do |really |quite |rather |also )?(?:like"
        r"|love|enjoy|fancy|adore)\b(?! (?:you|to (?:change|book|return|cancel|order)))|\bwe (?:do |really "
        r"|quite |all )?(?:like|love|enjoy)\b|\b(?:he|she|they) (?:likes?|loves?|enjoys?)\b|bonus\b"
        r"|nice[- ]to[- ]have|wouldn't (?:mind|hurt|say no)|partial to|fond of|a fan of|\bnot fussed"
        r"|don't (?:mind|care)|happy (?:with|either)|no strong|suits? me|helps? a bit|makes? me (?:happy"
        r"|smile)|favou?rite|keen on|(?:extra|brownie) points|a plus\b|not (?:essential|a must|required)"
        r"|optional|lean(?:ing)? towards|soft spot|if (?:there's|you find|it fits|it's easy|it works|you can)"
        r"|would love|wish list|dream of|no (?:biggie|big deal) if|kind of like|tend to like|rather (?:like"
        r"|enjoy)|more of a .{1,20} person)"
    ),
    hypothetical=re.compile(
        r"\bif (?:i|we|he|she|it|they|you|money|time|mum|dad|someone|somebody|my|our|the|this|that|there|only"
        r"|\w+) ?(?:[a-z'-]+ ){0,3}?(?:were|was|had|won|could|ever|didn't|wasn't|weren't|hadn't|happened|lived"
        r"|owned|got|dropped|found|became|started|knew|wanted|moved|went|existed|ran|made|did|lost|came|took"
        r"|gave)\b"
        r"|^(?:and |but |so |oh |well )?(?:were|had) (?:i|we|it|he|she|they|money|there)\b|\bwere i (?:to|rich"
        r"|you|younger|a|still|in)|\bsuppos(?:e|ing)\b(?! to)|\bimagin(?:e|ing)\b|hypothe|\bin theory\b"
        r"|theoretically|in (?:another|a different|a past|my next) (?:life|world|universe)|parallel universe"
        r"|in (?:a|an) (?:perfect|ideal|dream) world|\bdream(?:t|ed|ing)? (?:about|of|that|last|i)|had (?:a"
        r"|this|the) (?:\w+ )?dream|day ?dream|\bi wish\b|\bif only\b|some ?day\b|one day (?:i|we|maybe"
        r"|perhaps)|(?:just |only |totally )?(?:kidding|joking)\b|as a joke|\bjokingly\b|what if\b|^(?:ok,? |so,? )?say (?:we|i|you|he|she|they|it) (?:won|had|were|was|got|lost|could|found|moved|ran|did|didn't)\b"
        r"|\bif (?:i|we|he|she|they|you|it)'d\b|let's (?:pretend|imagine|say (?:i|we) (?:were|had|won|lived))|(?:thought experiment)"
        r"|sake of argument|devil's advocate|in my (?:wildest )?dreams|fantas(?:y|ise|ize|ising)|pipe dream"
        r"|for (?:example'?s|argument's) sake|half[- ](?:tempted|joking)|\b(?:sometimes|occasionally"
        r"|part of me) (?:i )?(?:think|wonder|wish|dream|want)|toying with the idea|i(?:'d| would) (?:happily "
        r"|gladly |probably |totally |just )?(?:kill|die|sell my)|maybe in (?:a )?(?:few|my|\w+ years)"
        r"|when i(?:'m| am) (?:rich|retired|a millionaire|old|famous)|if i ever|if .{1,40} (?:third|fourth"
        r"|one more|once more) time"
    ),
    unreal=re.compile(
        r"^(?:but |and |sadly |alas |luckily |thankfully |of course )?(?:i'm not|we're not|we don't|i don't"
        r"|we haven't|i haven't|we can't|i didn't|she doesn't|not happening|not going to happen"
        r"|never (?:going to )?happen|(?:just |only )?(?:kidding|joking)|but no\b|not really|as if"
        r"|in my dreams|one can dream|a (?:girl|man|guy|woman) can dream|haha|lol\b|ha\b|obviously not)"
    ),
    third_person=re.compile(rf"\b(?P<who>{_OTHERS}){_SAYS_OF_OTHERS}"),
    outsider=re.compile(
        r"^(?:and |but |oh |so |also |well |by the way,? ){0,2}(?:the|our|that|my|his|her|their|one of the|old|mrs?|ms|some) (?:[\w'-]+ ){0,5}?"
        r"(?!(?:order|number|paper|server|water|power|user|door|floor|error|letter|dinner|supper|computer|printer|router|laptop|adapter|container|cluster"
        r"|layer|folder|header|footer|timer|counter|trailer|register|calendar|summer|winter|december|september|october|november|border|corner|cover|offer"
        r"|parser|compiler|buffer|driver|handler|helper|filter|pointer|container|cooker|boiler|freezer|dishwasher|washer|dryer|heater|charger|speaker|monitor"
        r"|sensor|motor|mirror|color|colour|interior|factor|editor|indicator|minor|ulcer|cancer|fever|over|after|under|other|either|whether|rather|never|ever"
        r"|however|together|matter|quarter|shoulder|finger|mother|father|brother|sister|daughter|partner|owner|customer|restaurant|plant|deadline)\b)"
        r"(?:[a-z]{3,}(?:er|or|ist|ian|man|woman|men|women|ess|folk)|team|firm|crew|company|guys?|lad|lot|club|clinic|school|shop|boss|ta|couple|family|neighbours?)s?(?:'s)?,?"
        r"(?: [\w',-]+){0,6}? (?:is|isn't|was|has|had|have|does|do|can't|won't|would|must|never|only|refuses|insists|insisted|wants|wanted|hates|keeps|kept|got|gets|gives|gave|made|makes|told|hired|uses|takes|took|grows|flies|spent|plays|swears|needs|bans|banned|demanded|demands)\b"
    ),
    absent=re.compile(
        r"\b(?:(?:is|are|'s|'re|was|he|she|they)(?:'s)? (?:not|isn't|aren't|never|won't be) (?:coming|joining"
        r"|eating|here|there|part|on|in(?:volved)?|invited|around|attending|going|travelling|with us|living)"
        r"|isn't (?:coming|joining|eating|here|part|on|involved|invited|around|attending|going|travelling"
        r"|with us)|aren't (?:coming|joining|eating|here|part|involved|invited|around|attending|going)"
        r"|won't be (?:there|coming|joining|with us|eating|around|here)|(?:stays?|staying|stayed) (?:at )?home"
        r"|(?:is|'s|are) away|(?:working|busy|abroad|out of town) (?:that|then|on)|long story|(?:good|fine"
        r"|great|lucky|nice) for (?:him|her|them)|(?:his|her|their) (?:problem|business|choice|call|own|loss"
        r"|thing)\b|each to|to each|just saying|not (?:my|our) (?:problem|thing|circus|business|concern|style)|nothing to do with (?:me|us"
        r"|this)|unrelated|separately|passed away|i hear\b|don't (?:note|write) (?:that|it) down|between (?:him|her|them) and|that's (?:his|her|their) (?:side|thing|contract"
        r"|business|problem)|by the way|funny (?:story|enough)|lives? in\b|anyway|bless (?:him|her|them)"
        r"|poor (?:thing|guy|man|sod|woman)|go figure|whatever works|doesn't (?:affect|concern|matter)"
        r"|not (?:for )?(?:him|her|them)|call you themselves|swears? by)"
    ),
    participant=re.compile(
        r"\b(?:with us|for us|for (?:me and|my|our|mum|mom|dad)|(?:me|us|i|we) and\b|and (?:me|i)\b|(?:comes?"
        r"|coming|goes|going|joins?|joining|tags?|tagging|travels?|travelling|eats?|eating) (?:along|with|too"
        r"|us)|(?:is|are|'s|'re|will be) (?:also )?(?:coming|joining|invited|attending|there)|the (?:two|three"
        r"|four|five) of us|with (?:my|our|mum|mom|dad|gran)|tutor my|my (?:guest|group)|on the list|who(?:'s"
        r"| is| are) (?:coming|joining))"
    ),
    person=re.compile(
        rf"\b(?:(?P<who>{_KIN}|wife|husband|partner|spouse|fianc[eé]e?|sons?|daughters?|kids?|child(?:ren)?"
        rf"|baby|toddler)"
        r"|(?P<pronoun>he|she|they)(?:'s|'re|'ve|'ll|'d)?)\b"
    ),
    reports=re.compile(r"\b(?:says?|said|wrote|told (?:me|us)|e-?mailed|confirmed|texted|phoned)\b"),
    therefore=re.compile(
        r"^(?:and )?so\b|\bthen\W*$|\bthat's why\b|\bwhich is why\b|\bhence\b|\bbecause of (?:that|him|her|them)\b"
        r"|\btherefore\b|\bwhich means\b"
    ),
    instructs=re.compile(
        r"^(?:then |so |but |just |please |in that case,? ){0,4}(?:call|ring|text|ask|tell|cancel|send|let me"
        r"|move|switch|stop|skip|book|use|"
        r"don't|do not|never|refund|return|postpone|leave|keep|go (?:with|for)|take|wait|abort|roll back|alert"
        r"|page|notify)\b"
    ),
    continues=re.compile(
        r"^(?:then |and then |in that case|that way|(?:i|we|he|she|they|it|that|you)(?:'d| would| could"
        r"| might)\b|with (?:that|it) (?:i|we)'d)"
    ),
    actual=re.compile(
        r"\b(?:but (?:for now|seriously|as it is|in reality|since|until then|for this)|seriously though"
        r"|in fact|as it is|for now|right now"
        r"|in reality|meanwhile|but (?:keep|use|please|no|never|don't|make|stick|it has to|we|i) (?!were|was"
        r"|would|'d))"
    ),
    subjectless=re.compile(
        r"^(?:and |but |so |apparently |also )?(?:he|she|they|his|her|hers|their|theirs|he's|she's|they're"
        r"|he'll|she'll|can't|cannot|won't|mustn't|never|has to|have to|had to|must|needs|allergic|hates|loves"
        r"|swears|refuses|says|insists|got|wants|only|doesn't|didn't|isn't|eats|drinks)\b"
    ),
    own=re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|we'd|we'll|us|our|ours)\b"),
    question=re.compile(
        r"\?[\"')]*$|^(?:so |and |but |btw |ok |hey |oh |also )?(?:what|what's|whats|who|who's|where|where's"
        r"|when|when's|why|how|how's|hows|is|are|do|does|did|can you explain|any idea|anyone know)\b(?! (?:i"
        r"|we) (?:mean|need|want|do mind|can't|ever))"
    ),
    small_talk=re.compile(
        r"^(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|sure|great|good (?:morning|evening|night|luck|stuff)"
        r"|bye|see you|you're welcome|wow|cool|nice|ha(?:ha)*|lol|ugh|phew|yes|no problem|sounds (?:good"
        r"|great)|of course|perfect|lovely|brilliant|cheers)\b[^a-z]*(?:[a-z']+[^a-z]*){0,3}$|good to be back"
        r"|weather|raining|sunny|traffic was|on the bus|\bgosh\b|\bomg\b|honestly the|guess what|fun fact"
        r"|you won't believe"
    ),
    past=re.compile(
        r"\b(?:yesterday|last (?:night|week|year|month|summer|time)|(?:years|months|weeks|days|ages) ago"
        r"|this morning|once|used to|back (?:then|when|in)|(?:i|we|he|she|they|it|someone|somebody"
        r"|my \w+) (?:just |once |nearly |almost |actually )?(?:went|saw|had|was|were|found|lost|dropped|spent"
        r"|tried|watched|read|heard|met|forgot|ate|bought|counted|asked|got|took|made|told|left|ran|fell|woke"
        r"|slept|sat|stood|walked|drove|missed|burnt|burned|spilled|broke))\b"
    ),
    change=re.compile(
        r"\b(?:now|again|extension|reprieve|new phone|new number|put off|instead|actually|chang(?:e|ed|es|ing)|new (?:plan|date|time|budget|limit|number"
        r"|prescription|address|price|deadline|one)|moved?(?: it| that| up| back| forward)?|brought forward"
        r"|pushed|postponed|rescheduled|shift(?:ed)?|make (?:it|that|the)|let's (?:call|say|make|go|do)"
        r"|rais(?:e|ed)|upped|up (?:it|to)|increas(?:e|ed)|stretch|go(?:es|ing)? (?:up |down |back )?(?:to"
        r"|with|for)|back to|down to|drop(?:s|ped)? to|lower(?:ed)?|cut|reduc(?:e|ed)|switch(?:ed|ing)?"
        r"|swap(?:ped)?|replac(?:e|ed|es)|rather than|no longer|any ?(?:more|longer)(?=\W*(?:$|,|;|either))|updat(?:e|ed)|correction|scratch"
        r"|second thoughts?|turns? out|(?:i|was) wrong|misspoke|i meant|i mean\b|scrap|revis(?:e|ed)"
        r"|in the end|after all|better make|we're .{1,20} now|can go|has become|become|works out"
        r"|starting (?:from|with)|from (?:january|february|march|april|may|june|july|august|september|october"
        r"|november|december|now|next)|void|trust|overr[ua]n|delayed|extended (?:it|the|to|until)|extra|bumped?|one (?:more|less"
        r"|fewer)|only \w+ (?:left|of us)|dropped out|cancell?ed|joining|correct(?:ed)?|amend(?:ed)?"
        r"|adjust(?:ed)?|that's all|that makes|makes? it|brings? (?:it|us|the)|takes? (?:it|us|the \w+) (?:up "
        r"|down )?to|settled|decided|agreed|agree on|misremember\w*|my mistake|sorry|wait|hang on|emailed"
        r"|called|rang|wrote|letter|found out|checked|told me|have been told|nope|not .{1,15} (?:but|as)"
        r"|rethink|rethought|reconsider|ended up|realis|realiz|will be|'ll be|is fine|are fine|is ok"
        r"|thinking about it|having thought)\b|\bso\b.{0,30}\bfine\b|!!"
    ),
    chooses=re.compile(
        r"\b(?:let's (?:do|have|go|take|make)|(?:go|going|went|gone) (?:with|for)|(?:i'll|we'll|i will|we will|i'd rather|i would rather) (?:take|have|go|do)|make (?:it|that)"
        r"|(?:so|then|now) it's|it's (?:now|going to be)|it is(?=\W*$|,)|settle for|settled on|opt(?:ed)? for|swap|switch|rather have|decided (?:on|for|to)|i want|we want|give me)\b"
    ),
    reminder=re.compile(
        r"\b(?:you (?:had|have|'ve got|put|got) (?:me|us|it) down|i (?:think i |know i |may have |might have )?(?:told you|asked (?:you )?for|said)|(?:i'd|we'd|i had|we had) (?:said|asked|told|planned|agreed|wanted|booked|promised)"
        r"|as i said|a while (?:ago|back)|earlier (?:i|we|on)|(?:i|we) (?:originally|first|initially) (?:said|asked|wanted|planned)|i did say|remember (?:the|my|when|that)|(?:i|we) was going to|(?:i|we) were going to)\b"
    ),
    adds=re.compile(
        r"^(?:(?:one|two|three|four|five|six|some|half|most|none|both|the rest) of (?:them|us|those|these|whom|which)|of (?:those|these|which|whom))\b|^(?:and|also|plus|besides|oh and|one more)\b(?! (?:now|actually|make))|\b(?:as well|too|another|the other|either|in addition)\W*$|\bthe other\b|\b(?:another|additional|extra for|on top)\b"
    ),
    frame=re.compile(
        r"^(?:and |but |so |then |ok |please |actually |just |now |no,? ){0,3}(?:re)?(?P<verb>name|call|put|leave|fly|drive|travel|send|bring|book|start|begin|stay|meet|park|store|save|write|paint|use|serve|seat|host|hold|deploy|run|ship|deliver|drop|place|keep|file|sign|label|tag|wrap|cook|charge|pay|train|walk|go|sit|sleep|eat|hang)\b"
        r"(?:(?: [\w'-]+){0,5}? (?P<where>from|to|into|in|with|at|by|on|under|behind|near|as)\b)?"
    ),
    subject=re.compile(
        rf"^(?:(?:and|but|so|then|ok|okay|well|oh|actually|now|also|plus|please|turns out|anyway|no|yes|right|from now on"
        rf"|let's|i want you to|can you|could you|you can),? ){{0,3}}"
        rf"(?:(?:{_DOES}) (?:(?:the|my|our|a|an|his|her|your|all|any|that|this|these|those) )?"
        rf"(?P<object>[\w-]+(?: [\w-]+){{0,3}}?)(?= (?:{_RELATES})\b|\W*$)"
        rf"|(?P<about>[\w-]+(?: [\w-]+){{0,5}}?)(?:'s| (?:{_IS})\b))"
    ),
    negative=re.compile(
        r"\b(?:too (?!much|many|late|early|bad|long ago)[a-z]+|full|closed|shut|sold out|fully booked|unavailable|broken|no|not|never|none|nothing|without|zero|nor|neither|nobody|leave (?:it|that|them|those|him"
        r"|her)? ?(?:out|off)|skip|avoid|drop(?:ped)?|scrap(?:ped)?|cancel(?:led|ed)?|exclud\w+|remov\w+"
        r"|forget|off the (?:table|list|menu)|out of the question|ban(?:ned)?|refus\w+|frightens|horrified"
        r"|lost interest|hates?|detests?|against|void|gone|ended?|instead of|rather than)\b|n't\b"
    ),
    replacement=re.compile(
        r"\b(?:instead|it is(?=\W*$|,)|from (?:here|now) on|comes? to\b|we're down to|down to|ended up (?:with|at)|has to be .{1,30} now|as of (?:now|today|this)|is (?:now|going to be)|works out at|make (?:it|that|the [a-z]+)|actually|changed (?:my|our|her|his|their) minds?|rather than|no longer"
        r"|scratch that|correction|switch(?:ed)? (?:it |that |this )?to|let's (?:go with|make it|call it|do)"
        r"|on second thoughts?|second thought|thinking about it|having thought|replac(?:e|ed) (?:it |that "
        r"|this )?(?:with|by)|swap(?:ped)? (?:it |that |this )?(?:to|for|with)|moved? (?:it |that "
        r"|this )?(?:to|up|back|forward)|brought forward|pushed|postponed|rescheduled|change (?:it|that|this"
        r"|the .{1,20}) to|i was wrong|i misspoke|i meant|turns out|final (?:word|answer|decision)|new plan"
        r"|change of plan|go back to|back to|trust|nope|the .{1,30} is now|(?:is|are|'s|'re|it) now|(?:up"
        r"|raise[d]?|stretch|increase[d]?|lower(?:ed)?|reduce[d]?|drop(?:ped)?|cut) (?:it |that |this )?to"
        r"|we agreed|we settled)\b"
    ),
    withdrawal=re.compile(
        r"\b(?:\bthat's (?:over|done|history|off)\b|(?:is|are|'s) off (?:the (?:list|menu|table|cards|plan))|no more [a-z]+|scrap the|(?:is|are) history|forget (?:that|it|about|what|the|my|all|everything)|never ?mind|\bdrop (?:that|the|it|this|my"
        r"|all)|\bscrap(?:ped)?\b|\bscratch (?:that|the)|\bignore (?:that|what|my|the)|disregard"
        r"|no longer (?:need|matter|appl|necessary|a problem|an issue|relevant|want|require|have to|important"
        r"|true|valid)|(?:doesn't|don't|does not|not) (?:matter|apply|need|count)(?: [a-z]+){0,3} any ?more"
        r"|doesn't matter|not needed|isn't needed|aren't needed|won't (?:need|be needing|be needed)"
        r"|don't need .{1,30}(?:any ?more|after all|now)|needn't|no (?:[a-z]+ ){1,3}(?:needed|required|necessary)|\blifted|withdraw|off the table|\bvoid\b"
        r"|take (?:that|it) back|taking (?:that|it) back|(?:is|are|'s|'re) (?:fine|ok|okay|allowed|good"
        r"|all right|alright|back)(?: again| after all| now| too|,? (?:so|as) long|\b)|no (?:call|use|point"
        r"|reason) (?:for|in)|do(?:ing)? without|that's that\b|never again|put .{1,20} where you like"
        r"|(?:up to you|your choice|you choose|you decide)|leave (?:that|it|them) out|not bothered|(?:don't"
        r"|doesn't) (?:really )?(?:mind|care|fuss)|can go\b|wrong (?:form|file|person)|previous \w+"
        r"|as it turns out|it turns out|for nothing|ditched|dropped it|gave up on|given up on|(?:^|, "
        r"|\b)no then\b|any [a-z]+ (?:will do|goes|is fine|works|is ok)|don't bother|you can (?:strike|cross|leave|ditch|cancel|scrap|lose|relax|forget"
        r"|drop|ignore|skip|include|use|add|lift)|no need (?:for|to)|skip (?:that|the)|(?:take|leave|cut|strike|keep) (?:that|this|the) (?:[a-z]+ ){1,2}(?:out|off)|isn't coming"
        r"|not coming after all|grew out of|grown out|cleared (?:me|him|her|us)|all[- ]clear|again now|(?:can"
        r"|may) (?:eat|have|drink|use|go|do) .{1,30} again|not (?:an issue|a problem|necessary"
        r"|important) (?:any ?more|now)|called off|cancel (?:that|the|my)|it's off\b|that's off|let it go"
        r"|leave (?:that|it) out after all|undo|revert|lost interest|changed my mind|over it|old news"
        r"|that rule|the ban\b|don't worry about|he says he doesn't mind|she doesn't mind|we don't mind"
        r"|i don't mind any)"
    ),
    acknowledged=re.compile(
        r"\b(?:noted|got it|understood|gotcha|i'll (?:keep|remember|make|note|use|put|set|leave|avoid|look"
        r"|plan|add|bear|stick|skip|stop|ring|cap|exclude|include|aim|remind|flag|treat)|i've (?:noted|added"
        r"|set|put|saved|moved|updated|booked|made|switched|marked)|saved|will do|right,|ok(?:ay)?[,.]|it is\b"
        r"|then\.|only\.|confirmed|added|recorded|thank you for telling|good to know|on the list|excluded?"
        r"|excluding|out\.$|duly|as (?:base|start)|max|by (?:january|february|march|april|may|june|july|august"
        r"|september|october|november|december)|no [a-z]+)"
    ),
    changed=re.compile(
        r"\b(?:updat(?:ed|ing)|chang(?:ed|ing)|switch(?:ed|ing)|mov(?:ed|ing)|rais(?:ed|ing)|lower(?:ed|ing)"
        r"|replac(?:ed|ing)|now\b|instead|adjust(?:ed|ing)|correct(?:ed|ing)|revis(?:ed|ing)|dropp(?:ed|ing)"
        r"|remov(?:ed|ing)|cancell?(?:ed|ing)|allowed|lift(?:ed|ing)|stop (?:looking|filtering|avoiding)"
        r"|no longer|rescheduled|brought forward|shift(?:ed|ing)|extended|reduced|increased|gone\b|(?:taken"
        r"|take|took|taking) (?:it |that |them )?(?:off|out|away)|cleared|str(?:ike|uck)|no more\b|deleted"
        r"|deleting|off the (?:list|menu|plan)|back (?:in|on)\b|all [a-z]+s\.|any [a-z]+\b|as you (?:like"
        r"|wish)|free (?:choice|to)|i'll choose|unlocked|undone|\bto the \w+ then|new (?:limit|budget|date"
        r"|time|total|ceiling)|(?:is|are) (?:fine|ok|okay|back) |then\.$)"
    ),
    removed=re.compile(
        r"\b(?:(?:remov|delet|cancell?|dropp|strick|clear|scrapp|lift|unlock)ed\b|struck|strike (?:it|that|them)|taken? (?:it |that |them )?(?:off|out|away)"
        r"|(?:i'll|i will) (?:drop|ignore|forget|skip|leave|strike|remove|take|stop|cancel|delete|scrap)\b.{0,30}|gone\b|off (?:the )?(?:list|menu|plan|table)"
        r"|no (?:longer|more|need)\b|not needed|out (?:then|it is)|without (?:it|that)|forgotten|consider it (?:gone|done|dropped)|stopped|i'll choose|free choice|anything goes|all (?!means\b)[a-z]+s\b|(?:out|off) it (?:goes|comes))"
    ),
    concludes=re.compile(r"\bthen\W*$|^then\b|\b(?:it|that) is\W*$"),
    confirm_request=re.compile(
        r"\b(?:(?:just )?to (?:confirm|be (?:sure|clear)|double[- ]check|recap|check|summari[sz]e)|you (?:said"
        r"|mentioned|told me|want(?:ed)?|asked|prefer)|(?:is that )?(?:right|correct|yes)\?|shall i|should i"
        r"|do you want|so (?:that's|no|it's|you|we|the)|am i right|if i understand|i(?:'ll| will) .{1,60}\?"
        r"|does that|let me (?:confirm|check|repeat)|confirm(?:ing)?\b|i have you)"
    ),
    confirmation=re.compile(
        r"^\W*(?:yes|yep|yeah|yup|aye|correct|exactly|right|that's (?:right|correct|it|the one|what i)"
        r"|confirmed?|sure|ok(?:ay)?|indeed|absolutely|definitely|precisely|of course|spot on|affirmative|true"
        r"|fine|perfect|agreed|please do|do that|go ahead|sounds (?:good|right)|that works|works for me"
        r"|you got it|bang on|100|uh-huh|mhm|still (?:true|holds|stands))\b"
    ),
    denial=re.compile(r"^\W*(?:no|nope|nah|wrong|incorrect|not (?:really|quite|any ?more)|negative)\b"),
    dismissed=re.compile(
        r"\b(?:each to their own|to each|good for (?:him|her|them)|fair enough|oh dear|not on this"
        r"|won't (?:plan|factor|count|apply)|only (?:yours|your)|stays? (?:an option|available|on)"
        r"|for you,? then|then i(?:'ll| won't)|(?:sounds like|tell) (?:him|her)|his (?:own|call|choice)"
        r"|her (?:own|call|choice)|their (?:own|call|choice)|leaving (?:that|him|her|them) out|doesn't affect"
        r"|no (?:change|effect|bearing)|not (?:our|your) (?:problem|guest)|not (?:coming|on the list|part)"
        r"|he's not|she's not|they're not|dedicated\b|poor (?:him|her|thing)|i'd help|one day!"
        r"|would not object|someday|in (?:theory|another)|until then|dream|fantasy|ha\b|haha|if only"
        r"|let's (?:stay|keep) (?:with|to) reality)"
    ),
    values=VALUES,
    figures=FIGURES,
    units=UNITS,
    number=number,
    words=WORDS,
)
